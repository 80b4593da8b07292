package weig;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;
import weig.WeigFile.Option;

/** The worked example of section 19, and what the conformance suite cannot see from outside. */
class WeigFileTest {
    private static final String LITTLE = """
            4749455701000000 0200000000000000 4000000000000000 c000000000000000
            1001000000000000 0000000000000000 0000000000000000 0000000000000000
            b000000000000000 0200000000000000 a000000000000000 0100000000000000
            c000000000000000 0600000000000000
            b200000000000000 0000000000000000 a800000000000000 0100000000000000
            0001000000000000 0800000000000000
            0300000000000000 0200000000000000 6200770000000000 0000000000000000
            803f004080bf""";
    private static final String BIG = """
            5745494700000001 0000000000000002 0000000000000040 00000000000000c0
            0000000000000110 0000000000000000 0000000000000000 0000000000000000
            00000000000000b0 0000000200000000 00000000000000a0 0000000000000001
            00000000000000c0 0000000000000006
            00000000000000b2 0000000000000000 00000000000000a8 0000000000000001
            0000000000000100 0000000000000008
            0000000000000003 0000000000000002 6200770000000000 0000000000000000
            3f804000bf80""";

    @TempDir
    Path folder;

    private static byte[] example(boolean big) {
        ByteBuffer file = ByteBuffer.allocate(272);
        file.put(HexFormat.of().parseHex((big ? BIG : LITTLE).replaceAll("\\s", "")));
        assertEquals(198, file.position());
        file.put(
                256,
                HexFormat.of().parseHex(big ? "3f800000c000000057454947454e4421" : "0000803f000000c021444e4547494557"));
        return file.array();
    }

    private Path write(byte[] bytes) throws IOException {
        return Files.write(folder.resolve("file.weig"), bytes);
    }

    private static byte[] bytes(Tensor tensor, ByteOrder order) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        tensor.forEachChunk(order, chunk -> {
            while (chunk.hasRemaining()) {
                all.write(chunk.get());
            }
        });
        return all.toByteArray();
    }

    private void refused(String code, Path path) {
        WeigException e = assertThrows(
                WeigException.class, () -> WeigFile.open(path, Option.DEEP).close());
        assertEquals(code, e.code(), e.getMessage());
    }

    @ParameterizedTest
    @CsvSource({"false,DEEP", "false,READ", "true,DEEP", "true,READ"})
    void workedExample(boolean big, Option option) throws IOException {
        try (WeigFile file = WeigFile.open(write(example(big)), option)) {
            assertEquals(big ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN, file.byteOrder());
            assertEquals(List.of("b", "w"), List.copyOf(file.tensors().keySet()));
            Tensor b = file.tensor("b");
            assertEquals(Dtype.BF16, b.dtype());
            assertArrayEquals(new long[] {3}, b.shape());
            assertEquals("803f004080bf", HexFormat.of().formatHex(bytes(b, ByteOrder.LITTLE_ENDIAN)));
            assertEquals("3f804000bf80", HexFormat.of().formatHex(bytes(b, ByteOrder.BIG_ENDIAN)));
            ByteBuffer w = file.tensor("w").buffers().get(0);
            assertEquals(1.0f, w.getFloat(0));
            assertEquals(-2.0f, w.getFloat(4));
            assertTrue(w.isReadOnly());
            assertEquals(0, w.alignmentOffset(0, 64));
        }
    }

    @ParameterizedTest
    @CsvSource({
        "0,00,BAD_MAGIC",
        "4,02,BAD_VERSION",
        "8,03,BAD_META_TABLE",
        "16,3c,BAD_META_TABLE",
        "24,c8,MISALIGNED",
        "32,18,TRUNCATED",
        "32,08,TRAILING_DATA",
        "32,09,BAD_FILE_SIZE",
        "33,00,BAD_FILE_SIZE",
        "40,01,UNKNOWN_FLAG",
        "44,ff,",
        "55,01,BAD_RESERVED",
        "64,00,BAD_NAME",
        "72,13,BAD_DTYPE",
        "76,01,BAD_RESERVED",
        "80,00,BAD_SHAPE",
        "88,41,BAD_SHAPE",
        "96,40,BAD_DATA_RANGE",
        "97,01,BAD_DATA_RANGE",
        "104,07,BAD_DATA_SIZE",
        "111,80,NUMBER_TOO_LARGE",
        "160,00,BAD_DATA_SIZE",
        "166,1f,BAD_SHAPE",
        "167,ff,NUMBER_TOO_LARGE",
        "176,ff,BAD_NAME",
        "176,1b,BAD_NAME",
        "176,77,DUPLICATE_NAME",
        "177,62,",
        "180,01,NONZERO_PADDING",
        "200,01,NONZERO_PADDING",
        "264,20,BAD_SENTINEL",
    })
    void oneByteChanged(int at, String hex, String code) throws IOException {
        byte[] bytes = example(false);
        bytes[at] = HexFormat.of().parseHex(hex)[0];
        Path path = write(bytes);
        if (code == null) {
            WeigFile.open(path, Option.DEEP).close();
        } else {
            refused(code, path);
        }
    }

    @ParameterizedTest
    @CsvSource({"2,8,OVERLAP", "0,8,", "2,0,"})
    void sameOffset(byte dtype, byte size, String code) throws IOException {
        byte[] bytes = example(false);
        bytes[64 + 8] = 0; // b becomes F32[2] at 256, where w is
        bytes[64 + 32] = 0;
        bytes[64 + 33] = 1;
        bytes[64 + 40] = 8;
        bytes[160] = 2;
        bytes[112 + 8] = dtype;
        bytes[112 + 40] = size;
        bytes[168] = (byte) (size / Dtype.values()[dtype].bytes);
        for (int i = 192; i < 198; i++) {
            bytes[i] = 0;
        }
        Path path = write(bytes);
        if (code == null) {
            WeigFile.open(path, Option.READ, Option.DEEP).close();
        } else {
            refused(code, path);
        }
    }

    @Test
    void everyCut() throws IOException {
        for (int n = 0; n < 272; n++) {
            byte[] cut = new byte[n];
            System.arraycopy(example(true), 0, cut, 0, n);
            refused(n < 72 ? "TOO_SMALL" : "TRUNCATED", write(cut));
        }
    }

    @Test
    void noRegularFile() throws IOException, InterruptedException {
        refused("NOT_REGULAR_FILE", folder);
        refused("IO", folder.resolve("missing"));
        refused("NOT_REGULAR_FILE", Path.of("/dev/zero"));
        Path fifo = folder.resolve("fifo");
        assertEquals(0, new ProcessBuilder("mkfifo", fifo.toString()).start().waitFor());
        refused("NOT_REGULAR_FILE", fifo);
    }

    @Test
    void viewsOutliveTheFile() throws IOException {
        WeigFile file = WeigFile.open(write(example(false)));
        Tensor w = file.tensor("w");
        file.close();
        assertEquals(1.0f, w.buffers().get(0).getFloat(0));
        WeigException e = assertThrows(WeigException.class, () -> file.tensor("w"));
        assertEquals("CLOSED", e.code());
    }

    @ParameterizedTest
    @EnumSource
    void aChangeIsSeen(Option option) throws IOException {
        Path path = write(example(false));
        try (WeigFile file = WeigFile.open(path, option)) {
            file.checkUnmodified();
            WeigException no = assertThrows(WeigException.class, () -> file.tensor("\u001b[2J"));
            assertEquals("NO_SUCH_TENSOR", no.code());
            assertFalse(no.getMessage().contains("\u001b"));
            try (RandomAccessFile writer = new RandomAccessFile(path.toFile(), "rw")) {
                writer.setLength(option == Option.READ ? 0 : 280);
            }
            WeigException e = assertThrows(WeigException.class, file::checkUnmodified);
            assertEquals("MODIFIED", e.code());
            assertEquals(1.0f, file.tensor("w").buffers().get(0).getFloat(0)); // OPEN-14
        }
    }

    /** A tensor of 5 GiB, almost all of it a hole: segments, and no reading at level open. */
    @Test
    void largerThanABuffer() throws IOException {
        long size = 5L << 30;
        ByteBuffer bytes = ByteBuffer.wrap(example(false)).order(ByteOrder.LITTLE_ENDIAN);
        bytes.putLong(32, 256 + size + 8);
        bytes.putLong(112 + 40, size);
        bytes.putLong(168, size / 4);
        Path path = write(bytes.array());
        try (RandomAccessFile writer = new RandomAccessFile(path.toFile(), "rw")) {
            writer.setLength(256 + size + 8);
            writer.seek(256 + size - 4);
            writer.write(HexFormat.of().parseHex("000000c021444e4547494557"));
        }
        try (WeigFile file = WeigFile.open(path)) {
            List<ByteBuffer> segments = file.tensor("w").buffers();
            assertEquals(5, segments.size());
            assertEquals(1.0f, segments.get(0).getFloat(0));
            assertEquals(-2.0f, segments.get(4).getFloat((1 << 30) - 4));
        }
        Files.delete(path);
    }
}
