package weig;

import static weig.ErrorCode.*;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The checks of level open: sections 3 to 11, in the order of the specification. */
final class Parser {
    private static final int MAGIC = 0x57454947;
    private static final long SENTINEL = 0x57454947454E4421L;
    private static final long MOST = (1L << 53) - 1;
    private static final int SMALLEST = 72;
    static final int HEADER = 64;
    static final int RECORD = 48;
    private static final int LONGEST_NAME = 1023;
    private static final int MOST_DIMS = 64;

    /** A range of the file that belongs to something: [start, end). */
    record Range(long start, long end) {}

    private final Source source;
    private final Storage storage;
    private final List<Range> owned; // null where deep verification will not ask
    private final CharsetDecoder utf8 = StandardCharsets.UTF_8.newDecoder(); // reports, never mends
    private final byte[] nameBytes = new byte[LONGEST_NAME + 1];
    private final byte[] record = new byte[RECORD];
    private final byte[] dims = new byte[8 * MOST_DIMS];
    private final Map<Long, long[]> shapes = new HashMap<>();
    private long memory = Runtime.getRuntime().maxMemory() / 2;

    private ByteOrder order;
    private long count;
    private long metaOffset;
    private long dataOffset;
    private long auxStart;
    private long end;

    Parser(Source source, Storage storage, List<Range> owned) {
        this.source = source;
        this.storage = storage;
        this.owned = owned;
    }

    ByteOrder order() {
        return order;
    }

    /** All tensors by name, in the order of the table; or the first refusal (OPEN-6). */
    Map<String, Tensor> parse() throws WeigException {
        header();
        own(0, HEADER);
        own(metaOffset, RECORD * count);
        own(end, 8);
        // A String's hash is known to everybody, but a HashMap keeps strings that collide in a
        // tree, so equal names are found in n log n at worst (OPEN-5).
        Map<String, Tensor> tensors = new LinkedHashMap<>();
        for (long i = 0; i < count; i++) {
            Tensor tensor = record(i);
            if (tensors.put(tensor.name(), tensor) != null) { // NAME-6
                throw wrong(DUPLICATE_NAME, i, "name_offset",
                        "a second \"" + WeigException.escape(tensor.name()) + "\"");
            }
        }
        overlaps(tensors);
        return tensors;
    }

    private void header() throws WeigException {
        if (source.size < SMALLEST) { // HDR-1
            throw wrong(TOO_SMALL, "", "the file has " + source.size + " bytes");
        }
        ByteBuffer header = ByteBuffer.allocate(HEADER);
        source.read(0, header);
        order = switch (header.getInt(0)) { // HDR-2, NUM-1
            case MAGIC -> ByteOrder.BIG_ENDIAN;
            case 0x47494557 -> ByteOrder.LITTLE_ENDIAN;
            default -> throw wrong(BAD_MAGIC, "header.magic", Foreign.describe(header));
        };
        header.order(order);
        if (header.getInt(4) != 1) { // HDR-3
            throw wrong(BAD_VERSION, "header.version",
                    "version " + Integer.toUnsignedString(header.getInt(4)));
        }
        count = number(header, 8, "header.tensor_count");
        metaOffset = number(header, 16, "header.meta_offset");
        dataOffset = number(header, 24, "header.data_offset");
        long fileSize = number(header, 32, "header.file_size");
        if (fileSize % 8 != 0 || fileSize < SMALLEST) { // HDR-4
            throw wrong(BAD_FILE_SIZE, "header.file_size", fileSize + " is no size of a file");
        }
        if (source.size < fileSize) { // HDR-5
            throw wrong(TRUNCATED, "header.file_size", "the file has " + source.size
                    + " bytes and should have " + fileSize);
        }
        if (source.size > fileSize) { // HDR-6
            throw wrong(TRAILING_DATA, "header.file_size", "the file has " + source.size
                    + " bytes and should have " + fileSize);
        }
        if ((int) header.getLong(40) != 0) { // HDR-7: bits 0 to 31
            throw wrong(UNKNOWN_FLAG, "header.flags",
                    "flags 0x" + Long.toHexString(header.getLong(40)));
        }
        if ((header.getLong(48) | header.getLong(56)) != 0) { // HDR-8
            throw wrong(BAD_RESERVED, "header.reserved", "reserved bytes are not zero");
        }
        end = fileSize - 8;
        if (metaOffset < HEADER || metaOffset % 8 != 0) { // META-1, META-2
            throw wrong(BAD_META_TABLE, "header.meta_offset",
                    metaOffset + " is inside the header or no multiple of 8");
        }
        if (dataOffset % 64 != 0) { // REGION-1
            throw wrong(MISALIGNED, "header.data_offset", dataOffset + " is no multiple of 64");
        }
        if (dataOffset > end) { // REGION-2
            throw wrong(BAD_DATA_REGION, "header.data_offset", dataOffset + " is past " + end);
        }
        if (metaOffset > dataOffset || count > (dataOffset - metaOffset) / RECORD) { // META-3
            throw wrong(BAD_META_TABLE, "header.tensor_count",
                    count + " records do not fit between " + metaOffset + " and " + dataOffset);
        }
        auxStart = metaOffset + RECORD * count; // at most dataOffset
        ByteBuffer sentinel = ByteBuffer.allocate(8).order(order);
        source.read(end, sentinel);
        if (sentinel.getLong(0) != SENTINEL) { // TAIL-1
            throw wrong(BAD_SENTINEL, "sentinel", "the file does not end with the sentinel");
        }
    }

    private Tensor record(long i) throws WeigException {
        source.copy(metaOffset + RECORD * i, record, RECORD);
        ByteBuffer fields = ByteBuffer.wrap(record).order(order);
        long nameOffset = number(fields, 0, i, "name_offset");
        long shapeOffset = number(fields, 16, i, "shape_offset");
        long shapeCount = number(fields, 24, i, "shape_count");
        long offset = number(fields, 32, i, "data_offset");
        long size = number(fields, 40, i, "data_size");
        if (fields.getInt(12) != 0) { // META-4
            throw wrong(BAD_RESERVED, i, "pad", "not zero");
        }
        Dtype dtype = Dtype.ofCode(fields.getInt(8));
        if (dtype == null) { // DTYPE-1
            throw wrong(BAD_DTYPE, i, "dtype",
                    "code " + Integer.toUnsignedString(fields.getInt(8)));
        }
        String name = name(i, nameOffset);
        long[] shape = shape(i, shapeOffset, shapeCount);
        if (size != bytes(i, shape, dtype)) { // SHAPE-5
            throw wrong(BAD_DATA_SIZE, i, "data_size",
                    size + " bytes for " + dtype + Arrays.toString(shape));
        }
        if (offset % 64 != 0) { // DATA-1
            throw wrong(MISALIGNED, i, "data_offset", offset + " is no multiple of 64");
        }
        if (offset < dataOffset) { // DATA-2
            throw wrong(BAD_DATA_RANGE, i, "data_offset", offset + " is before the data region");
        }
        if (offset > end || size > end - offset) { // DATA-3
            throw wrong(BAD_DATA_RANGE, i, offset > end ? "data_offset" : "data_size",
                    size + " bytes at " + offset + " do not end before " + end);
        }
        own(offset, size);
        spend(i, 256 + 2L * name.length());
        return new Tensor(name, dtype, shape, offset, size, order, storage);
    }

    private String name(long i, long at) throws WeigException {
        if (at < auxStart || at >= dataOffset) { // NAME-1
            throw wrong(BAD_NAME, i, "name_offset", at + " is not in the aux area");
        }
        int most = (int) Math.min(nameBytes.length, dataOffset - at);
        source.copy(at, nameBytes, most);
        int length = 0;
        while (length < most && nameBytes[length] != 0) {
            int c = nameBytes[length++] & 0xFF;
            if (c < 0x20 || c == 0x7F) { // NAME-5
                throw wrong(BAD_NAME, i, "name_offset", "a control byte in the name");
            }
        }
        if (length == most || length == 0) { // NAME-2, NAME-3
            throw wrong(BAD_NAME, i, "name_offset", length == 0
                    ? "an empty name" : "no NUL within " + most + " bytes");
        }
        own(at, length + 1L);
        try {
            return utf8.decode(ByteBuffer.wrap(nameBytes, 0, length)).toString(); // NAME-4
        } catch (CharacterCodingException e) {
            throw wrong(BAD_NAME, i, "name_offset", "the name is not UTF-8");
        }
    }

    private long[] shape(long i, long at, long rank) throws WeigException {
        if (rank > MOST_DIMS) { // SHAPE-1
            throw wrong(BAD_SHAPE, i, "shape_count", rank + " dimensions");
        }
        if (at < auxStart || at > dataOffset || rank > (dataOffset - at) / 8) { // SHAPE-2
            throw wrong(BAD_SHAPE, i, "shape_offset", "the shape is not in the aux area");
        }
        // Records may share an array: then they share ours too, else a small file made for it
        // would take 512 bytes of memory for each of its records.
        Long key = at * (MOST_DIMS + 1) + rank; // below 2^60
        long[] known = shapes.get(key);
        if (known != null) {
            return known;
        }
        source.copy(at, dims, (int) (8 * rank));
        ByteBuffer from = ByteBuffer.wrap(dims).order(order); // SHAPE-3: any alignment
        long[] shape = new long[(int) rank];
        for (int k = 0; k < shape.length; k++) {
            shape[k] = number(from, 8 * k, i, "shape[" + k + "]");
        }
        own(at, 8 * rank);
        spend(i, 128 + 8 * rank);
        shapes.put(key, shape);
        return shape;
    }

    private long bytes(long i, long[] shape, Dtype dtype) throws WeigException {
        long product = dtype.bytes();
        boolean empty = false;
        for (long dim : shape) {
            if (dim == 0) {
                empty = true;
            } else if (product > MOST / dim) { // SHAPE-4: also where another dimension is zero
                throw wrong(BAD_SHAPE, i, "shape", Arrays.toString(shape) + " is too large");
            } else {
                product *= dim;
            }
        }
        return empty ? 0 : product;
    }

    /** DATA-4, by comparing neighbours in the order of offsets (OPEN-5). */
    private void overlaps(Map<String, Tensor> tensors) throws WeigException {
        Tensor[] sorted = tensors.values().stream()
                .filter(tensor -> tensor.byteSize() > 0)
                .sorted(Comparator.comparingLong(tensor -> tensor.offset))
                .toArray(Tensor[]::new);
        for (int i = 1; i < sorted.length; i++) {
            Tensor one = sorted[i - 1];
            Tensor two = sorted[i];
            boolean alias = one.offset == two.offset
                    && one.byteSize() == two.byteSize() && one.dtype() == two.dtype();
            if (!alias && two.offset - one.offset < one.byteSize()) {
                throw wrong(OVERLAP, "", "\"" + WeigException.escape(one.name()) + "\" and \""
                        + WeigException.escape(two.name()) + "\" share bytes");
            }
        }
    }

    /** Keeps account of memory, so that a file with too many records is refused in words. */
    private void spend(long i, long bytes) throws WeigException {
        memory -= bytes;
        if (memory < 0) { // OPEN-9
            throw wrong(TOO_LARGE, "", "no memory for more than " + i + " records");
        }
    }

    private void own(long start, long size) {
        if (owned != null && size > 0) {
            owned.add(new Range(start, start + size));
        }
    }

    private long number(ByteBuffer from, int at, long i, String field) throws WeigException {
        long value = from.getLong(at);
        if (value < 0 || value > MOST) { // NUM-2; a negative long is 2^63 or more
            throw wrong(NUMBER_TOO_LARGE, i, field, Long.toUnsignedString(value));
        }
        return value;
    }

    private static long number(ByteBuffer from, int at, String field) throws WeigException {
        long value = from.getLong(at);
        if (value < 0 || value > MOST) { // NUM-2
            throw wrong(NUMBER_TOO_LARGE, field, Long.toUnsignedString(value));
        }
        return value;
    }

    private static WeigException wrong(ErrorCode code, long i, String field, String message) {
        return wrong(code, "meta[" + i + "]." + field, message);
    }

    private static WeigException wrong(ErrorCode code, String field, String message) {
        return new WeigException(code, field, field.isEmpty() ? message : field + ": " + message);
    }
}
