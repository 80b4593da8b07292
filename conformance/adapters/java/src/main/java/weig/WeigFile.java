package weig;

import java.io.Closeable;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/**
 * An open file of named tensors. All of level open was checked before an object of this class
 * exists (OPEN-6). Closing it gives back the descriptor; tensors that were given out stay.
 */
public final class WeigFile implements Closeable {
    /** The two ways of section 17. */
    public enum Mode { MMAP, READ }

    /** The two levels of section 1. */
    public enum Level { OPEN, DEEP }

    private final Source source;
    private final ByteOrder order;
    private final Map<String, Tensor> tensors;

    private WeigFile(Source source, Parser parser, Map<String, Tensor> tensors) {
        this.source = source;
        this.order = parser.order();
        this.tensors = Collections.unmodifiableMap(tensors);
    }

    /** Maps a file, checked at level open. */
    public static WeigFile open(Path path) throws WeigException {
        return open(path, Mode.MMAP, Level.OPEN);
    }

    /** Opens a file; whatever is wrong with it comes as a {@link WeigException}. */
    public static WeigFile open(Path path, Mode mode, Level level) throws WeigException {
        Source source = Source.open(path);
        try {
            Storage storage =
                    mode == Mode.MMAP ? new Storage.Mapped(source) : new Storage.Copied(source);
            List<Parser.Range> owned = level == Level.DEEP ? new ArrayList<>() : null;
            Parser parser = new Parser(source, storage, owned);
            Map<String, Tensor> tensors = parser.parse();
            if (level == Level.DEEP) {
                Verifier verifier = new Verifier(source);
                verifier.padding(owned);
                verifier.bools(tensors.values());
            }
            for (Tensor tensor : tensors.values()) {
                tensor.load();
            }
            return new WeigFile(source, parser, tensors);
        } catch (WeigException | RuntimeException | Error e) {
            source.close();
            throw e;
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
        return tensors;
    }

    public Tensor tensor(String name) throws WeigException {
        Tensor tensor = tensors().get(name);
        if (tensor == null) {
            throw new WeigException(ErrorCode.NO_SUCH_TENSOR, "",
                    "no tensor \"" + WeigException.escape(name) + "\"");
        }
        return tensor;
    }

    /** Refuses with MODIFIED where the file is no longer the one that was opened (OPEN-10). */
    public void checkUnmodified() throws WeigException {
        if (source.isModified()) {
            throw new WeigException(ErrorCode.MODIFIED, "", "the file changed since it was opened");
        }
    }

    @Override
    public void close() throws WeigException {
        source.close();
    }
}
