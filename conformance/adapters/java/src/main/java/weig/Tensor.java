package weig;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** One tensor of a file. It stays usable after the file was closed (OPEN-12). */
public final class Tensor {
    private static final int CHUNK = 1 << 16; // a multiple of every unit

    private final String name;
    private final Dtype dtype;
    private final long[] shape;
    final long offset;
    private final long size;
    private final ByteOrder order;
    private final Storage storage;

    Tensor(
            String name,
            Dtype dtype,
            long[] shape,
            long offset,
            long size,
            ByteOrder order,
            Storage storage) {
        this.name = name;
        this.dtype = dtype;
        this.shape = shape;
        this.offset = offset;
        this.size = size;
        this.order = order;
        this.storage = storage;
    }

    public String name() {
        return name;
    }

    public Dtype dtype() {
        return dtype;
    }

    /** The dimensions; a scalar has none. */
    public long[] shape() {
        return shape.clone();
    }

    /** How many bytes the elements take together. */
    public long byteSize() {
        return size;
    }

    /** Where in the file the bytes start: the same for aliases (DATA-4). */
    public long position() {
        return offset;
    }

    /**
     * The elements where they lie: one read-only buffer up to 1 GiB, then one for each GiB more.
     * The buffers are in the byte order of the file, so {@code getFloat} and its kin are right.
     */
    public List<ByteBuffer> buffers() {
        List<ByteBuffer> list = new ArrayList<>();
        long done = 0;
        do {
            int n = (int) Math.min(Storage.SEGMENT, size - done);
            list.add(storage.segment(offset + done, n).order(order));
            done += n;
        } while (done < size);
        return list;
    }

    /**
     * Gives the elements in a byte order, row-major, a chunk at a time. A chunk is good until the
     * consumer returns; bit patterns are moved, never read as numbers (section 8).
     */
    public void forEachChunk(ByteOrder wanted, Consumer<ByteBuffer> consumer) {
        byte[] memory = new byte[(int) Math.min(CHUNK, size)];
        for (ByteBuffer segment : buffers()) {
            for (int at = 0; at < segment.limit(); ) {
                int n = Math.min(memory.length, segment.limit() - at);
                ByteBuffer from = segment.slice(at, n).order(order);
                ByteBuffer chunk = ByteBuffer.wrap(memory, 0, n).order(wanted);
                switch (dtype.unit()) {
                    case 8 -> chunk.asLongBuffer().put(from.asLongBuffer());
                    case 4 -> chunk.asIntBuffer().put(from.asIntBuffer());
                    case 2 -> chunk.asShortBuffer().put(from.asShortBuffer());
                    default -> chunk.duplicate().put(from);
                }
                consumer.accept(chunk);
                at += n;
            }
        }
    }

    void load() throws WeigException {
        long done = 0;
        do {
            int n = (int) Math.min(Storage.SEGMENT, size - done);
            storage.add(offset + done, n);
            done += n;
        } while (done < size);
    }
}
