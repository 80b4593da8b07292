package weig;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;

/** Section 12. Reads the file, never a map: a file that was cut meanwhile is TRUNCATED. */
final class Verifier {
    private static final int CHUNK = 1 << 20;
    private static final byte[] ZEROS = new byte[CHUNK];

    private final Source source;
    private final ByteBuffer chunk = ByteBuffer.allocate(CHUNK);

    Verifier(Source source) {
        this.source = source;
    }

    /** PAD-1: what lies between the owned ranges is zero. */
    void padding(List<Parser.Range> owned) throws WeigException {
        owned.sort(Comparator.comparingLong(Parser.Range::start));
        long end = 0;
        for (Parser.Range range : owned) { // the last one is the sentinel
            for (long at = end; at < range.start(); at += chunk.limit()) {
                read(at, range.start());
                int bad = Arrays.mismatch(
                        chunk.array(), 0, chunk.limit(), ZEROS, 0, chunk.limit());
                if (bad >= 0) {
                    throw new WeigException(
                            ErrorCode.NONZERO_PADDING, "", "byte " + (at + bad) + " is not zero");
                }
            }
            end = Math.max(end, range.end());
        }
    }

    /** BOOL-1; aliases are looked at once, however many there are. */
    void bools(Collection<Tensor> tensors) throws WeigException {
        long[][] ranges = tensors.stream()
                .filter(tensor -> tensor.dtype() == Dtype.BOOL && tensor.byteSize() > 0)
                .map(tensor -> new long[] {tensor.offset, tensor.offset + tensor.byteSize()})
                .sorted(Comparator.comparingLong(range -> range[0]))
                .toArray(long[][]::new);
        long end = 0;
        for (long[] range : ranges) {
            for (long at = Math.max(end, range[0]); at < range[1]; at += chunk.limit()) {
                read(at, range[1]);
                for (int i = 0; i < chunk.limit(); i++) {
                    if ((chunk.array()[i] & 0xFE) != 0) {
                        throw new WeigException(ErrorCode.BAD_BOOL, "",
                                "byte " + (at + i) + ", an element of a BOOL, is not 0 or 1");
                    }
                }
            }
            end = range[1];
        }
    }

    private void read(long at, long end) throws WeigException {
        chunk.clear().limit((int) Math.min(CHUNK, end - at));
        source.read(at, chunk);
    }
}
