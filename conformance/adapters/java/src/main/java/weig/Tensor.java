package weig;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.function.Consumer;

/**
 * One tensor of a file. It stays usable after the file was closed (OPEN-12).
 *
 * @param shape the dimensions; a scalar has none
 * @param position where in the file the bytes start: the same for aliases (DATA-4)
 * @param byteSize how many bytes the elements take together
 * @param buffers the elements where they lie: one read-only buffer up to 1 GiB, then one for each GiB more. They are in
 *     the byte order of the file, so {@code getFloat} and its kin are right.
 */
public record Tensor(
        String name,
        Dtype dtype,
        long[] shape,
        long position,
        long byteSize,
        ByteOrder order,
        List<ByteBuffer> buffers) {
    private static final int CHUNK = 1 << 16; // a multiple of every unit

    /** This tensor with its bytes, mapped or copied. */
    Tensor in(Source source, boolean copy) throws IOException {
        return new Tensor(name, dtype, shape, position, byteSize, order, source.segments(position, byteSize, copy));
    }

    @Override
    public long[] shape() {
        return shape.clone();
    }

    @Override
    public List<ByteBuffer> buffers() {
        return buffers.stream().map(buffer -> buffer.duplicate().order(order)).toList();
    }

    /**
     * Gives the elements in a byte order, row-major, a chunk at a time. A chunk is good until the consumer returns; bit
     * patterns are moved, never read as numbers (section 8).
     */
    public void forEachChunk(ByteOrder wanted, Consumer<ByteBuffer> consumer) {
        var memory = new byte[(int) Math.min(CHUNK, byteSize)];
        for (ByteBuffer segment : buffers) {
            for (int at = 0; at < segment.limit(); at += CHUNK) {
                int n = Math.min(CHUNK, segment.limit() - at);
                ByteBuffer from = segment.slice(at, n).order(order);
                ByteBuffer chunk = ByteBuffer.wrap(memory, 0, n).order(wanted);
                switch (dtype.unit) {
                    case 8 -> chunk.asLongBuffer().put(from.asLongBuffer());
                    case 4 -> chunk.asIntBuffer().put(from.asIntBuffer());
                    case 2 -> chunk.asShortBuffer().put(from.asShortBuffer());
                    default -> chunk.duplicate().put(from);
                }
                consumer.accept(chunk);
            }
        }
    }
}
