package weig;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileTime;
import java.util.Objects;

/**
 * An open regular file: its identity, and reads from it at any place.
 *
 * <p>Metadata is read through a cache of pages and not through a map: a page of a map that is gone
 * (the file was cut) is a fault in the middle of the loader, a read of it is an answer. And only
 * the pages that records point to are ever read (OPEN-5), however large the table and the aux area
 * claim to be.
 */
final class Source implements Closeable {
    private static final int PAGE = 4096;
    private static final int SLOTS = 512;
    private static final int ATTEMPTS = 10;

    private record Identity(Object key, long size, FileTime modified) {
        static Identity of(BasicFileAttributes attributes) {
            return new Identity(
                    attributes.fileKey(), attributes.size(), attributes.lastModifiedTime());
        }
    }

    final FileChannel channel;
    final long size;
    private final Path path;
    private final Identity identity;
    private final ByteBuffer[] pages = new ByteBuffer[SLOTS];
    private final long[] pageNumbers = new long[SLOTS];

    private Source(Path path, FileChannel channel, Identity identity) throws IOException {
        this.path = path;
        this.channel = channel;
        this.identity = identity;
        this.size = channel.size(); // OPEN-3: from the descriptor
    }

    /**
     * Opens a regular file (OPEN-1). Java cannot open with O_NONBLOCK, so the path is looked at
     * first (OPEN-2), and again once it is open: a file that was replaced in between is opened anew.
     */
    static Source open(Path given) throws WeigException {
        Path path = given.toAbsolutePath();
        for (int attempt = 1; ; attempt++) {
            try {
                BasicFileAttributes before = regular(path);
                FileChannel channel = FileChannel.open(path, StandardOpenOption.READ);
                try {
                    BasicFileAttributes after = regular(path);
                    if (Objects.equals(before.fileKey(), after.fileKey())) {
                        return new Source(path, channel, Identity.of(after));
                    }
                } catch (IOException | RuntimeException e) {
                    channel.close();
                    throw e;
                }
                channel.close();
            } catch (WeigException e) {
                throw e;
            } catch (IOException e) {
                throw new WeigException(ErrorCode.IO, e); // OPEN-11
            }
            if (attempt == ATTEMPTS) {
                throw new WeigException(
                        ErrorCode.MODIFIED, "", "the file was replaced each time it was opened");
            }
        }
    }

    private static BasicFileAttributes regular(Path path) throws IOException {
        BasicFileAttributes attributes = Files.readAttributes(path, BasicFileAttributes.class);
        if (!attributes.isRegularFile()) { // OPEN-1
            throw new WeigException(ErrorCode.NOT_REGULAR_FILE, "", "not a regular file");
        }
        return attributes;
    }

    /** Whether the path names another file now, or the file another size or time (OPEN-10). */
    boolean isModified() throws WeigException {
        try {
            BasicFileAttributes now = Files.readAttributes(path, BasicFileAttributes.class);
            return !identity.equals(Identity.of(now));
        } catch (java.nio.file.NoSuchFileException e) {
            return true;
        } catch (IOException e) {
            throw new WeigException(ErrorCode.IO, e);
        }
    }

    /** Refuses where the file became shorter than it was. */
    void checkSize() throws WeigException {
        try {
            if (channel.size() < size) {
                throw new WeigException(ErrorCode.TRUNCATED, "", "the file was cut");
            }
        } catch (WeigException e) {
            throw e;
        } catch (IOException e) {
            throw new WeigException(ErrorCode.IO, e);
        }
    }

    /** Fills the rest of a buffer from a place of the file (OPEN-11). */
    void read(long offset, ByteBuffer into) throws WeigException {
        try {
            while (into.hasRemaining()) {
                int got = channel.read(into, offset);
                if (got < 0) {
                    throw new WeigException(
                            ErrorCode.TRUNCATED, "", "the file ends at byte " + offset);
                }
                offset += got;
            }
        } catch (WeigException e) {
            throw e;
        } catch (IOException e) {
            throw new WeigException(ErrorCode.IO, e);
        }
    }

    /** Copies a few bytes of the metadata; the range lies in the file. */
    void copy(long offset, byte[] into, int count) throws WeigException {
        for (int done = 0; done < count; ) {
            long at = offset + done;
            int inPage = (int) (at % PAGE);
            ByteBuffer page = page(at / PAGE);
            int n = Math.min(count - done, page.limit() - inPage);
            page.get(inPage, into, done, n);
            done += n;
        }
    }

    private ByteBuffer page(long number) throws WeigException {
        int slot = (int) (number % SLOTS);
        if (pages[slot] == null) {
            pages[slot] = ByteBuffer.allocate(PAGE);
        } else if (pageNumbers[slot] == number) {
            return pages[slot];
        }
        ByteBuffer page = pages[slot];
        pageNumbers[slot] = -1; // no page while the read may fail
        page.clear().limit((int) Math.min(PAGE, size - number * PAGE));
        read(number * PAGE, page);
        pageNumbers[slot] = number;
        return page;
    }

    @Override
    public void close() throws WeigException {
        try {
            channel.close();
        } catch (IOException e) {
            throw new WeigException(ErrorCode.IO, e);
        }
    }
}
