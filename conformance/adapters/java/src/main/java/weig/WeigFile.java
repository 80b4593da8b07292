package weig;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/**
 * An open file of named tensors. All of level open was checked before an object of this class exists (OPEN-6). Closing
 * it gives back the descriptor; tensors that were given out stay.
 */
public final class WeigFile implements Closeable {
    /** How else to open a file. */
    public enum Option {
        /** Copies the tensors into private memory instead of mapping them (section 17). */
        READ,
        /** Checks at level deep (section 12). */
        DEEP
    }

    private final Source source;
    private final ByteOrder order;
    private final Map<String, Tensor> tensors;

    private WeigFile(Source source, List<Option> options) throws IOException {
        this.source = source;
        checkUnmodified(); // since the path was looked at, before it was opened
        var parser = new Parser(source, options.contains(Option.DEEP));
        tensors = parser.parse();
        order = parser.order;
        boolean copy = options.contains(Option.READ);
        for (var entry : tensors.entrySet()) { // only now: nothing is copied for a bad file
            entry.setValue(entry.getValue().in(source, copy));
        }
    }

    /** Maps a file, checked at level open, or as the options say; whatever is wrong comes as a {@link WeigException}. */
    public static WeigFile open(Path path, Option... options) throws WeigException {
        try {
            var source = new Source(path);
            try {
                return new WeigFile(source, List.of(options));
            } catch (IOException | RuntimeException | Error e) {
                source.channel.close();
                throw e;
            }
        } catch (WeigException e) {
            throw e;
        } catch (IOException e) { // OPEN-11; ENOMEM comes from the JDK as an IOException with that cause
            String code = e.getCause() instanceof OutOfMemoryError ? "TOO_LARGE" : "IO";
            throw new WeigException(code, WeigException.escape(e.toString()), e); // the path is anybody's text
        } catch (OutOfMemoryError e) { // OPEN-9: all that was made for this file is garbage by now
            throw new WeigException("TOO_LARGE", "more than this process has memory for", e);
        }
    }

    public ByteOrder byteOrder() {
        return order;
    }

    /** All tensors by name, in the order of the file. */
    public Map<String, Tensor> tensors() throws WeigException {
        if (!source.channel.isOpen()) {
            throw new WeigException("CLOSED", "the file was closed");
        }
        return Collections.unmodifiableMap(tensors);
    }

    public Tensor tensor(String name) throws WeigException {
        Tensor tensor = tensors().get(name);
        if (tensor == null) {
            throw new WeigException("NO_SUCH_TENSOR", "no \"" + WeigException.escape(name) + "\"");
        }
        return tensor;
    }

    /** Refuses with MODIFIED where the path no longer leads to the file as it was opened (OPEN-10). */
    public void checkUnmodified() throws WeigException {
        if (source.isModified()) {
            throw new WeigException("MODIFIED", "the file is not the one that was opened, or it changed");
        }
    }

    @Override
    public void close() throws IOException {
        source.channel.close();
    }
}
