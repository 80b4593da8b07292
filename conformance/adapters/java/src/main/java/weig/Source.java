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

/** An open regular file: its identity, reads from it at any place, and the bytes of tensors, mapped or copied. */
final class Source {
    private static final int PIECE = 1 << 20;
    private static final long SEGMENT = 1L << 30;
    private static final long WINDOW = 2 * SEGMENT - 64;
    private static final int MOST_WINDOWS = 1 << 15; // 32 TiB; a process that uses up its maps dies
    private static final ByteBuffer EMPTY = ByteBuffer.allocateDirect(0).asReadOnlyBuffer();

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
    private final Map<Long, ByteBuffer> memory = new HashMap<>(); // maps or copies, by where they start in the file

    /**
     * Opens a regular file. Java cannot open with O_NONBLOCK, so the path is looked at first (OPEN-2), and whoever calls
     * this asks {@link #isModified} next: whether the path was exchanged in between.
     */
    Source(Path path) throws IOException {
        this.path = path;
        identity = Identity.of(path);
        if (!identity.regular) { // OPEN-1
            throw new WeigException("NOT_REGULAR_FILE", "not a regular file");
        }
        channel = FileChannel.open(path, StandardOpenOption.READ);
        size = channel.size(); // OPEN-3: from the descriptor
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
                throw new WeigException("TRUNCATED", "the file ends at byte " + at);
            }
            at += got;
        }
    }

    /**
     * The bytes of a tensor whose range was checked. A Java buffer has fewer than 2^31 bytes, so they come in segments
     * of 1 GiB, the last one shorter. All are read-only (OPEN-12), and keep their memory alive as long as anybody holds
     * them, whatever is closed before.
     */
    List<ByteBuffer> segments(long offset, long count, boolean copy) throws IOException {
        if (count == 0) {
            return List.of(EMPTY);
        }
        var segments = new ArrayList<ByteBuffer>(1);
        for (long done = 0; done < count; done += SEGMENT) {
            segments.add(segment(offset + done, (int) Math.min(SEGMENT, count - done), copy));
        }
        return List.copyOf(segments); // smaller, and there may be many
    }

    /**
     * A part of a copy, which aliases share, or of a map. Maps of 2 GiB start at each multiple of 1 GiB: so every segment
     * lies in one, and any number of small tensors shares it. Those without tensors are not made.
     */
    private ByteBuffer segment(long offset, int length, boolean copy) throws IOException {
        long start = copy ? offset : offset / SEGMENT * SEGMENT;
        ByteBuffer whole = memory.get(start);
        if (whole == null) {
            whole = copy ? copy(start, length) : map(start);
            memory.put(start, whole);
        }
        return whole.slice((int) (offset - start), length);
    }

    private ByteBuffer map(long start) throws IOException {
        if (memory.size() == MOST_WINDOWS) {
            throw new WeigException("TOO_LARGE", "too much data to map"); // OPEN-9
        }
        if (channel.size() < size) { // the JDK would refuse to map past the end, in other words
            throw new WeigException("TRUNCATED", "the file was cut");
        }
        return channel.map(FileChannel.MapMode.READ_ONLY, start, Math.min(WINDOW, size - start));
    }

    private ByteBuffer copy(long start, int length) throws IOException { // OPEN-14
        ByteBuffer copy = ByteBuffer.allocateDirect(length + 127).alignedSlice(64); // OPEN-4: less than the file
        for (int done = 0; done < length; done += PIECE) { // the JDK copies a read through a buffer of the same size
            read(start + done, copy.limit(Math.min(length, done + PIECE)));
        }
        return copy.asReadOnlyBuffer();
    }
}
