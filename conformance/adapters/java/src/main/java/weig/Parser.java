package weig;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The checks of the specification, in its order: sections 3 to 11 for level open, section 12 for level deep. There is no
 * account of memory: where it ends, the JVM says so, and whoever opened the file says TOO_LARGE (OPEN-9).
 */
final class Parser {
    private static final int MAGIC = 0x57454947;
    private static final long SENTINEL = 0x57454947454E4421L;
    private static final long MOST = (1L << 53) - 1;
    private static final int SMALLEST = 72;
    private static final int HEADER = 64;
    private static final int RECORD = 48;
    private static final int LONGEST_NAME = 1023;
    private static final int MOST_DIMS = 64;
    private static final int AHEAD = 8192; // more than the longest name, or shape, takes
    private static final byte[] ZEROS = new byte[1 << 20];
    private static final Dtype[] DTYPES = Dtype.values();

    /** Files of other kinds that people open by mistake, by their first bytes (section 14, BAD_MAGIC). */
    private static final Map<String, String> FOREIGN = Map.of(
            "version https://git-lfs", "a git-LFS pointer: the file itself was not fetched",
            "<", "HTML or XML: perhaps an error page that was saved",
            "PK\3\4", "ZIP (PyTorch and npz files are)",
            "GGUF", "GGUF",
            "\u001f\u008b", "gzip",
            "\u0093NUMPY", "npy");

    /** A range of the file that belongs to something: [start, end). */
    private record Range(long start, long end) {}

    /**
     * Reads metadata ahead: what records point to stands in their order, mostly. It is read and not mapped, because a
     * page of a map that is gone (the file was cut) is a fault in the middle of the loader, and a read of it an answer;
     * and only where records point to, however large the table and the aux area claim to be (OPEN-5).
     */
    private final class Window {
        private final ByteBuffer bytes = ByteBuffer.allocate(AHEAD).limit(0);
        private long start;

        ByteBuffer at(long offset, int count) throws IOException {
            if (offset < start || offset + count > start + bytes.limit()) {
                start = offset;
                source.read(start, bytes.clear().limit((int) Math.min(AHEAD, dataOffset - start)));
            }
            return bytes.slice((int) (offset - start), count).order(order);
        }
    }

    private final Source source;
    private final List<Range> owned; // null where level deep is not asked for
    private final CharsetDecoder utf8 = StandardCharsets.UTF_8.newDecoder(); // reports, never mends
    private final Window table = new Window();
    private final Window names = new Window();
    private final Window dims = new Window();

    private long index = -1; // the record that is being checked; none: the header
    ByteOrder order;
    private long count;
    private long metaOffset;
    private long dataOffset;
    private long auxStart;
    private long end;

    Parser(Source source, boolean deep) {
        this.source = source;
        this.owned = deep ? new ArrayList<>() : null;
    }

    /** All tensors by name, in the order of the table and as yet without bytes; or the first refusal (OPEN-6). */
    Map<String, Tensor> parse() throws IOException {
        header();
        own(0, HEADER);
        own(metaOffset, RECORD * count);
        own(end, 8);
        // Anybody knows how a String is hashed, but a HashMap keeps keys that collide in a tree where they can be
        // compared, so equal names are found in n log n at worst (OPEN-5).
        var tensors = new LinkedHashMap<String, Tensor>();
        for (index = 0; index < count; index++) {
            Tensor tensor = tensor(table.at(metaOffset + RECORD * index, RECORD));
            if (tensors.put(tensor.name(), tensor) != null) { // NAME-6
                throw wrong("DUPLICATE_NAME", "name_offset", WeigException.escape(tensor.name()) + " is there already");
            }
        }
        List<Tensor> sorted = tensors.values().stream()
                .filter(tensor -> tensor.byteSize() > 0)
                .sorted(Comparator.comparingLong(Tensor::position))
                .toList();
        overlaps(sorted);
        if (owned != null) {
            verify(sorted);
        }
        return tensors;
    }

    private void header() throws IOException {
        ByteBuffer header = ByteBuffer.allocate(HEADER);
        source.read(0, header.slice(0, (int) Math.min(HEADER, source.size)));
        if (source.size < SMALLEST) { // HDR-1
            throw new WeigException("TOO_SMALL", "the file has " + source.size + " bytes" + kind(header));
        }
        order = switch (header.getInt(0)) { // HDR-2, NUM-1
            case MAGIC -> ByteOrder.BIG_ENDIAN;
            case 0x47494557 -> ByteOrder.LITTLE_ENDIAN;
            default -> throw wrong("BAD_MAGIC", "magic", HexFormat.of().toHexDigits(header.getInt(0)) + kind(header));
        };
        header.order(order);
        check(header.getInt(4) == 1, "BAD_VERSION", "version", header.getInt(4), "is not 1"); // HDR-3
        count = number(header, 8, "tensor_count");
        metaOffset = number(header, 16, "meta_offset");
        dataOffset = number(header, 24, "data_offset");
        long fileSize = number(header, 32, "file_size");
        long flags = header.getLong(40);
        long reserved = header.getLong(48) | header.getLong(56);
        end = fileSize - 8;
        check(fileSize % 8 == 0 && fileSize >= SMALLEST, "BAD_FILE_SIZE", "file_size", fileSize, "is no size"); // HDR-4
        check(source.size >= fileSize, "TRUNCATED", "file_size", source.size, "bytes are fewer"); // HDR-5
        check(source.size <= fileSize, "TRAILING_DATA", "file_size", source.size, "bytes are more"); // HDR-6
        check((int) flags == 0, "UNKNOWN_FLAG", "flags", flags, "is not known"); // HDR-7: bits 0 to 31
        check(reserved == 0, "BAD_RESERVED", "reserved", reserved, "is not zero"); // HDR-8
        check(metaOffset >= HEADER, "BAD_META_TABLE", "meta_offset", metaOffset, "is in the header"); // META-1
        check(metaOffset % 8 == 0, "BAD_META_TABLE", "meta_offset", metaOffset, "is no multiple of 8"); // META-2
        check(dataOffset % 64 == 0, "MISALIGNED", "data_offset", dataOffset, "is no multiple of 64"); // REGION-1
        check(dataOffset <= end, "BAD_DATA_REGION", "data_offset", dataOffset, "is past the end"); // REGION-2
        check(metaOffset <= dataOffset, "BAD_META_TABLE", "meta_offset", metaOffset, "is in the data region"); // META-3
        long most = (dataOffset - metaOffset) / RECORD;
        check(count <= most, "BAD_META_TABLE", "tensor_count", count, "records do not fit"); // META-3
        auxStart = metaOffset + RECORD * count; // at most dataOffset
        ByteBuffer tail = ByteBuffer.allocate(8).order(order);
        source.read(end, tail);
        check(tail.getLong(0) == SENTINEL, "BAD_SENTINEL", "file_size", fileSize, "ends no sentinel"); // TAIL-1
    }

    private Tensor tensor(ByteBuffer fields) throws IOException {
        long nameOffset = number(fields, 0, "name_offset");
        int code = fields.getInt(8); // negative where it is 2^31 or more
        long pad = fields.getInt(12);
        long shapeOffset = number(fields, 16, "shape_offset");
        long rank = number(fields, 24, "shape_count");
        long offset = number(fields, 32, "data_offset");
        long size = number(fields, 40, "data_size");
        check(pad == 0, "BAD_RESERVED", "pad", pad, "is not zero"); // META-4
        check(code >= 0 && code < DTYPES.length, "BAD_DTYPE", "dtype", code, "is not a code"); // DTYPE-1
        Dtype dtype = DTYPES[code];
        String name = name(nameOffset);
        long[] shape = shape(shapeOffset, rank);
        check(size == byteSize(shape, dtype), "BAD_DATA_SIZE", "data_size", size, "is not the shape's"); // SHAPE-5
        check(offset % 64 == 0, "MISALIGNED", "data_offset", offset, "is no multiple of 64"); // DATA-1
        check(offset >= dataOffset, "BAD_DATA_RANGE", "data_offset", offset, "is before the data region"); // DATA-2
        check(offset <= end, "BAD_DATA_RANGE", "data_offset", offset, "is past the end"); // DATA-3
        check(size <= end - offset, "BAD_DATA_RANGE", "data_size", size, "bytes do not fit"); // DATA-3
        own(offset, size);
        return new Tensor(name, dtype, shape, offset, size, order, List.of());
    }

    private String name(long at) throws IOException {
        check(at >= auxStart && at < dataOffset, "BAD_NAME", "name_offset", at, "is not in the aux area"); // NAME-1
        int most = (int) Math.min(LONGEST_NAME + 1, dataOffset - at);
        ByteBuffer bytes = names.at(at, most);
        int length = 0;
        while (length < most && bytes.get(length) != 0) {
            int c = bytes.get(length++) & 0xFF;
            check(c >= 0x20 && c != 0x7F, "BAD_NAME", "name_offset", c, "is a control byte"); // NAME-5
        }
        check(length < most, "BAD_NAME", "name_offset", most, "bytes have no NUL"); // NAME-2, NAME-3
        check(length > 0, "BAD_NAME", "name_offset", at, "is where an empty name starts"); // NAME-3
        own(at, length + 1L);
        try {
            return utf8.decode(bytes.limit(length)).toString(); // NAME-4
        } catch (CharacterCodingException e) {
            throw wrong("BAD_NAME", "name_offset", "the name is not UTF-8");
        }
    }

    private long[] shape(long at, long rank) throws IOException {
        check(rank <= MOST_DIMS, "BAD_SHAPE", "shape_count", rank, "are too many dimensions"); // SHAPE-1
        check(at >= auxStart && at <= dataOffset, "BAD_SHAPE", "shape_offset", at, "is not in the aux area"); // SHAPE-2
        check(rank <= (dataOffset - at) / 8, "BAD_SHAPE", "shape_count", rank, "dimensions do not fit"); // SHAPE-2
        ByteBuffer bytes = dims.at(at, (int) (8 * rank)); // SHAPE-3: any alignment
        var shape = new long[(int) rank];
        for (int k = 0; k < shape.length; k++) {
            shape[k] = number(bytes, 8 * k, "shape");
        }
        own(at, 8 * rank);
        return shape;
    }

    private long byteSize(long[] shape, Dtype dtype) throws WeigException {
        long product = dtype.bytes;
        boolean empty = false;
        for (long dim : shape) {
            empty |= dim == 0;
            long factor = Math.max(dim, 1); // SHAPE-4 holds also where another dimension is zero
            check(product <= MOST / factor, "BAD_SHAPE", "shape", dim, "makes it too large"); // SHAPE-4
            product *= factor;
        }
        return empty ? 0 : product;
    }

    /** DATA-4, by comparing neighbours in the order of offsets (OPEN-5). */
    private static void overlaps(List<Tensor> sorted) throws WeigException {
        for (int i = 1; i < sorted.size(); i++) {
            Tensor one = sorted.get(i - 1);
            Tensor two = sorted.get(i);
            long apart = two.position() - one.position();
            boolean alias = apart == 0 && one.byteSize() == two.byteSize() && one.dtype() == two.dtype();
            if (!alias && apart < one.byteSize()) {
                String names = WeigException.escape(one.name() + "\" and \"" + two.name());
                throw new WeigException("OVERLAP", "\"" + names + "\" share bytes");
            }
        }
    }

    /** Section 12: what lies between the owned ranges, and the BOOL tensors; aliases are looked at once. */
    private void verify(List<Tensor> sorted) throws IOException {
        ByteBuffer chunk = ByteBuffer.allocate(ZEROS.length);
        owned.sort(Comparator.comparingLong(Range::start));
        long done = 0;
        for (Range range : owned) { // the last one is the sentinel
            scan(chunk, done, range.start, 0, "NONZERO_PADDING"); // PAD-1
            done = Math.max(done, range.end);
        }
        done = 0;
        for (Tensor tensor : sorted) {
            if (tensor.dtype() == Dtype.BOOL) {
                long end = tensor.position() + tensor.byteSize();
                scan(chunk, Math.max(done, tensor.position()), end, 1, "BAD_BOOL"); // BOOL-1
                done = end;
            }
        }
    }

    /** Refuses a byte above {@code most}, 0 or 1. Reads the file, not a map: one that was cut is TRUNCATED. */
    private void scan(ByteBuffer chunk, long start, long end, int most, String code) throws IOException {
        for (long at = start; at < end; at += chunk.limit()) {
            source.read(at, chunk.clear().limit((int) Math.min(ZEROS.length, end - at)));
            int n = chunk.limit();
            int i = Arrays.mismatch(chunk.array(), 0, n, ZEROS, 0, n); // fast where all is zero
            for (; i >= 0 && i < n; i++) {
                int value = chunk.get(i) & 0xFF;
                if (value > most) {
                    throw new WeigException(code, "byte " + (at + i) + " is " + value);
                }
            }
        }
    }

    /** What a file of another kind is, where its first bytes tell. */
    private static String kind(ByteBuffer header) {
        var start = new String(header.array(), StandardCharsets.ISO_8859_1);
        for (var known : FOREIGN.entrySet()) {
            if (start.startsWith(known.getKey())) {
                return "; this is " + known.getValue();
            }
        }
        return start.startsWith("{\"", 8) ? "; this is safetensors" : "";
    }

    private void own(long start, long size) {
        if (owned != null && size > 0) {
            owned.add(new Range(start, start + size));
        }
    }

    private long number(ByteBuffer from, int at, String field) throws WeigException {
        long value = from.getLong(at);
        if (value < 0 || value > MOST) { // NUM-2; a negative long is 2^63 or more
            throw wrong("NUMBER_TOO_LARGE", field, Long.toUnsignedString(value));
        }
        return value;
    }

    /** The funnel of the rules: no text is made for what is good. */
    private void check(boolean holds, String code, String field, long value, String words) throws WeigException {
        if (!holds) {
            throw wrong(code, field, value + " " + words);
        }
    }

    private WeigException wrong(String code, String field, String message) {
        return new WeigException(code, (index < 0 ? "header." : "meta[" + index + "].") + field + ": " + message);
    }
}
