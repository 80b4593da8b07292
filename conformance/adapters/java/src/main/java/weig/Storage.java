package weig;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.HashMap;
import java.util.Map;

/**
 * Where the bytes of tensors lie. A Java buffer has fewer than 2^31 bytes, so a tensor is given out
 * in segments of 1 GiB, the last one shorter. All buffers are read-only (OPEN-12), and a buffer
 * keeps its memory alive as long as anybody holds it, whatever is closed before.
 */
abstract class Storage {
    static final long SEGMENT = 1L << 30;
    /** 32 TiB of data; more windows would run into the kernel's limits of maps and addresses. */
    private static final int MOST_WINDOWS = 1 << 15;

    final Map<Long, ByteBuffer> buffers = new HashMap<>();

    /** Makes the bytes of one segment ready; called for each, before the first is given out. */
    abstract void add(long offset, int length) throws WeigException;

    /** A segment that was added. */
    abstract ByteBuffer segment(long offset, int length);

    /**
     * Maps windows of 2 GiB that start at each multiple of 1 GiB: so every segment lies in one
     * window, and any number of small tensors shares one map. Windows without tensors stay out.
     */
    static final class Mapped extends Storage {
        private final Source source;

        Mapped(Source source) {
            this.source = source;
        }

        @Override
        void add(long offset, int length) throws WeigException {
            long window = offset / SEGMENT;
            if (buffers.containsKey(window)) {
                return;
            }
            if (buffers.size() >= MOST_WINDOWS) {
                throw new WeigException(ErrorCode.TOO_LARGE, "", "too much data to map"); // OPEN-9
            }
            long start = window * SEGMENT;
            long size = Math.min(2 * SEGMENT - 64, source.size - start);
            try {
                buffers.put(
                        window, source.channel.map(FileChannel.MapMode.READ_ONLY, start, size));
            } catch (IOException e) {
                if (e.getCause() instanceof OutOfMemoryError) { // what the JDK makes of ENOMEM
                    throw new WeigException(ErrorCode.TOO_LARGE, e);
                }
                source.checkSize(); // the JDK refuses to map past the end
                throw new WeigException(ErrorCode.IO, e);
            }
        }

        @Override
        ByteBuffer segment(long offset, int length) {
            return buffers.get(offset / SEGMENT).slice((int) (offset % SEGMENT), length);
        }
    }

    /** Copies each segment into private memory (mode read, OPEN-14); aliases share one copy. */
    static final class Copied extends Storage {
        private final Source source;

        Copied(Source source) {
            this.source = source;
        }

        @Override
        void add(long offset, int length) throws WeigException {
            if (length == 0 || buffers.containsKey(offset)) {
                return;
            }
            ByteBuffer memory;
            try { // OPEN-4: the range was checked; a sparse file may still be more than the memory
                memory = ByteBuffer.allocateDirect(length + 127).alignedSlice(64).limit(length);
            } catch (OutOfMemoryError e) {
                throw new WeigException(ErrorCode.TOO_LARGE, "", "more data than memory"); // OPEN-9
            }
            // In pieces: the JDK copies a read through a buffer of the same size.
            for (int done = 0; done < length; done = memory.limit()) {
                memory.limit(Math.min(length, done + (1 << 20)));
                source.read(offset + done, memory);
            }
            buffers.put(offset, memory.flip().asReadOnlyBuffer());
        }

        @Override
        ByteBuffer segment(long offset, int length) {
            return length == 0
                    ? ByteBuffer.allocateDirect(0).asReadOnlyBuffer()
                    : buffers.get(offset).slice(0, length);
        }
    }
}
