package weig;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.Collections;
import java.util.Map;

/**
 * An open file of named tensors. All of level open was checked before an object of this class exists (OPEN-6). Closing
 * it gives back the descriptor; tensors that were given out stay.
 */
public final class WeigFile implements Closeable {
    /** The two ways of section 17. */
    public enum Mode {
        MMAP,
        READ
    }

    /** The two levels of section 1. */
    public enum Level {
        OPEN,
        DEEP
    }

    private final Source source;
    private final ByteOrder order;
    private final Map<String, Tensor> tensors;

    private WeigFile(Source source, Mode mode, Level level) throws IOException {
        this.source = source;
        var parser = new Parser(source, level == Level.DEEP);
        tensors = parser.parse();
        order = parser.order;
        for (Map.Entry<String, Tensor> entry : tensors.entrySet()) { // only now: nothing is copied for a bad file
            entry.setValue(entry.getValue().in(source, mode));
        }
    }

    /** Maps a file, checked at level open. */
    public static WeigFile open(Path path) throws WeigException {
        return open(path, Mode.MMAP, Level.OPEN);
    }

    /** Opens a file; whatever is wrong with it comes as a {@link WeigException}. */
    public static WeigFile open(Path path, Mode mode, Level level) throws WeigException {
        try {
            Source source = Source.open(path);
            try {
                return new WeigFile(source, mode, level);
            } catch (IOException | RuntimeException | Error e) {
                source.channel.close();
                throw e;
            }
        } catch (IOException e) {
            throw WeigException.of(e);
        } catch (OutOfMemoryError e) { // OPEN-9: all that was made for this file is garbage by now
            throw new WeigException(ErrorCode.TOO_LARGE, "", "more than this process has memory for");
        }
    }

    public ByteOrder byteOrder() {
        return order;
    }

    /** All tensors by name, in the order of the file. */
    public Map<String, Tensor> tensors() throws WeigException {
        if (!source.channel.isOpen()) {
            throw new WeigException(ErrorCode.CLOSED, "", "the file was closed");
        }
        return Collections.unmodifiableMap(tensors);
    }

    public Tensor tensor(String name) throws WeigException {
        Tensor tensor = tensors().get(name);
        if (tensor == null) {
            throw new WeigException(ErrorCode.NO_SUCH_TENSOR, "", "no \"" + WeigException.escape(name) + "\"");
        }
        return tensor;
    }

    /** Refuses with MODIFIED where the path no longer leads to the file as it was opened (OPEN-10). */
    public void checkUnmodified() throws WeigException {
        if (source.isModified()) {
            throw new WeigException(ErrorCode.MODIFIED, "", "the file changed since it was opened");
        }
    }

    @Override
    public void close() throws IOException {
        source.channel.close();
    }
}
