package weig;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * An open regular file: its identity, reads from it at any place, and the bytes of tensors, mapped or copied.
 *
 * <p>Metadata is read through a cache of pages and not through a map: a page of a map that is gone (the file was cut)
 * is a fault in the middle of the loader, a read of it is an answer. And only the pages that records point to are ever
 * read (OPEN-5), however large the table and the aux area claim to be.
 */
final class Source {
    private static final int ATTEMPTS = 10;
    private static final int PAGE = 4096;
    private static final int SLOTS = 512;
    private static final int PIECE = 1 << 20;
    private static final long SEGMENT = 1L << 30;
    private static final long WINDOW = 2 * SEGMENT - 64;
    private static final int MOST_WINDOWS = 1 << 15; // 32 TiB; the kernel has limits of maps and addresses
    private static final ByteBuffer EMPTY = ByteBuffer.allocateDirect(0).asReadOnlyBuffer();

    private static final class Page {
        final ByteBuffer bytes = ByteBuffer.allocate(PAGE);
        long number = -1;
    }

    private record Identity(boolean regular, Object key, long size, FileTime modified) {
        static Identity of(Path path) throws IOException {
            var now = Files.readAttributes(path, BasicFileAttributes.class);
            return new Identity(now.isRegularFile(), now.fileKey(), now.size(), now.lastModifiedTime());
        }
    }

    final FileChannel channel;
    final long size;
    private final Path path;
    private final Identity identity;
    private final Page[] pages = new Page[SLOTS];
    private final Map<Long, ByteBuffer> windows = new HashMap<>();
    private final Map<Long, ByteBuffer> copies = new HashMap<>();

    private Source(Path path, Identity identity) throws IOException {
        this.path = path;
        this.identity = identity;
        channel = FileChannel.open(path, StandardOpenOption.READ);
        size = channel.size(); // OPEN-3: from the descriptor
    }

    /**
     * Opens a regular file. Java cannot open with O_NONBLOCK, so the path is looked at first (OPEN-2), and again once
     * it is open: a file that was replaced in between is opened anew.
     */
    static Source open(Path path) throws IOException {
        for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
            var identity = Identity.of(path);
            if (!identity.regular) { // OPEN-1
                throw new WeigException(ErrorCode.NOT_REGULAR_FILE, "", "not a regular file");
            }
            var source = new Source(path, identity);
            if (!source.isModified()) {
                return source;
            }
            source.channel.close();
        }
        throw new WeigException(ErrorCode.MODIFIED, "", "the file changed each time it was opened");
    }

    /** Whether the path no longer leads to this file as it was opened (OPEN-10). */
    boolean isModified() {
        try {
            return !identity.equals(Identity.of(path));
        } catch (IOException e) {
            return true; // it leads nowhere
        }
    }

    /** Fills the rest of a buffer from a place of the file (OPEN-11). */
    void read(long offset, ByteBuffer into) throws IOException {
        for (long at = offset; into.hasRemaining(); ) {
            int got = channel.read(into, at);
            if (got < 0) {
                throw new WeigException(ErrorCode.TRUNCATED, "", "the file ends at byte " + at);
            }
            at += got;
        }
    }

    /** Copies a few bytes of the metadata; the range lies in the file. */
    void copy(long offset, byte[] into, int count) throws IOException {
        for (int done = 0; done < count; ) {
            long at = offset + done;
            int inPage = (int) (at % PAGE);
            ByteBuffer page = page(at / PAGE);
            int n = Math.min(count - done, page.limit() - inPage);
            page.get(inPage, into, done, n);
            done += n;
        }
    }

    private ByteBuffer page(long number) throws IOException {
        int slot = (int) (number % SLOTS);
        Page page = pages[slot] == null ? pages[slot] = new Page() : pages[slot];
        if (page.number != number) {
            page.number = number;
            read(number * PAGE, page.bytes.clear().limit((int) Math.min(PAGE, size - number * PAGE)));
        }
        return page.bytes;
    }

    /**
     * The bytes of a tensor whose range was checked. A Java buffer has fewer than 2^31 bytes, so they come in segments
     * of 1 GiB, the last one shorter. All are read-only (OPEN-12), and keep their memory alive as long as anybody holds
     * them, whatever is closed before.
     */
    List<ByteBuffer> segments(long offset, long count, WeigFile.Mode mode) throws IOException {
        if (count == 0) {
            return List.of(EMPTY);
        }
        var segments = new ArrayList<ByteBuffer>(1);
        for (long done = 0; done < count; done += SEGMENT) {
            int length = (int) Math.min(SEGMENT, count - done);
            segments.add(
                    switch (mode) {
                        case MMAP -> mapped(offset + done, length);
                        case READ -> copied(offset + done, length);
                    });
        }
        return List.copyOf(segments); // smaller, and there may be many
    }

    /**
     * A part of a map. Windows of 2 GiB start at each multiple of 1 GiB: so every segment lies in one, and any number
     * of small tensors shares one map. Windows without tensors stay out.
     */
    private ByteBuffer mapped(long offset, int length) throws IOException {
        long number = offset / SEGMENT;
        ByteBuffer window = windows.get(number);
        if (window == null) {
            if (windows.size() == MOST_WINDOWS) {
                throw new WeigException(ErrorCode.TOO_LARGE, "", "too much data to map"); // OPEN-9
            }
            long start = number * SEGMENT;
            try {
                window = channel.map(FileChannel.MapMode.READ_ONLY, start, Math.min(WINDOW, size - start));
            } catch (IOException e) {
                if (e.getCause() instanceof OutOfMemoryError noRoom) { // what the JDK makes of ENOMEM
                    throw noRoom;
                } else if (channel.size() < size) { // the JDK refuses to map past the end
                    throw new WeigException(ErrorCode.TRUNCATED, "", "the file was cut");
                }
                throw e;
            }
            windows.put(number, window);
        }
        return window.slice((int) (offset % SEGMENT), length);
    }

    /** A private copy (OPEN-14); aliases share one. */
    private ByteBuffer copied(long offset, int length) throws IOException {
        ByteBuffer copy = copies.get(offset);
        if (copy == null) {
            ByteBuffer memory = ByteBuffer.allocateDirect(length + 127).alignedSlice(64); // OPEN-4: less than the file
            // In pieces: the JDK copies a read through a buffer of the same size.
            for (int done = 0; done < length; done += PIECE) {
                read(offset + done, memory.limit(Math.min(length, done + PIECE)));
            }
            copy = memory.flip().asReadOnlyBuffer();
            copies.put(offset, copy);
        }
        return copy;
    }
}
