package weig.adapter;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import weig.ErrorCode;
import weig.Tensor;
import weig.WeigException;
import weig.WeigFile;

/** Answers the requests of the conformance suite: a line in, a JSON object on one line out. */
public final class Adapter {
    private static final int MOST_HEX = 4096;
    private static final int MOST_ALIGN = 65536;

    private final StringBuilder out = new StringBuilder();
    private final PrintStream stdout;

    private Adapter(PrintStream stdout) {
        this.stdout = stdout;
    }

    public static void main(String[] args) throws IOException {
        // Standard output is the protocol's: a stray println must not get into an answer.
        Adapter adapter = new Adapter(System.out);
        System.setOut(System.err);
        BufferedReader in =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            adapter.answer(line.split("\t", -1));
        }
    }

    private void answer(String[] words) {
        String id = words.length > 1 ? words[1] : "";
        try {
            switch (words[0]) {
                case "hello" -> hello();
                case "load" -> load(id, words);
                default -> status(id, "unsupported", "no such verb here");
            }
        } catch (WeigException e) { // the only way to a "rejected"
            if (e.code() == ErrorCode.UNSUPPORTED) {
                status(id, "unsupported", e.getMessage());
            } else {
                out.append("{\"id\":").append(quote(id)).append(",\"status\":\"rejected\"")
                        .append(",\"error\":\"").append(e.code()).append('"')
                        .append(",\"message\":").append(quote(e.getMessage()));
                if (!e.field().isEmpty()) {
                    out.append(",\"field\":").append(quote(e.field()));
                }
                out.append('}');
            }
        } catch (RuntimeException | Error e) { // a fault of ours, and said to be one
            e.printStackTrace();
            status(id, "internal", WeigException.escape(e.toString()));
        }
        out.append('\n');
        flush();
        stdout.flush();
    }

    private void hello() {
        out.append("{\"protocol\":1,\"loader\":\"weig-java\",\"version\":\"1.0.0\"")
                .append(",\"language\":\"java\",\"spec\":[\"1\"]")
                .append(",\"profiles\":[\"core\",\"data\",\"big-endian\",\"mmap\",\"deep\"]}");
    }

    private void load(String id, String[] words) throws WeigException {
        if (words.length < 3) {
            status(id, "unsupported", "load needs an id and a path");
            return;
        }
        Map<String, String> options = new HashMap<>();
        for (int i = 3; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            if (equals > 0) {
                options.put(words[i].substring(0, equals), words[i].substring(equals + 1));
            }
        }
        String data = options.getOrDefault("data", "none");
        String via = options.getOrDefault("via", "mmap");
        String level = options.getOrDefault("level", "open");
        if (!List.of("none", "sha256", "hex").contains(data)
                || !List.of("mmap", "read").contains(via)
                || !List.of("open", "deep").contains(level)) {
            status(id, "unsupported", "a value of a key is not known");
            return;
        }
        WeigFile.Mode mode = via.equals("read") ? WeigFile.Mode.READ : WeigFile.Mode.MMAP;
        WeigFile.Level depth =
                level.equals("deep") ? WeigFile.Level.DEEP : WeigFile.Level.OPEN;
        try (WeigFile file = WeigFile.open(Path.of(words[2]), mode, depth)) {
            List<Tensor> tensors = List.copyOf(file.tensors().values());
            // All that can fail comes before the first byte of the answer.
            List<String> contents = contents(tensors, data);
            out.append("{\"id\":").append(quote(id)).append(",\"status\":\"accepted\"")
                    .append(",\"byte_order\":\"")
                    .append(file.byteOrder() == ByteOrder.BIG_ENDIAN ? "big" : "little")
                    .append("\",\"count\":").append(file.tensors().size())
                    .append(",\"tensors\":[");
            for (int i = 0; i < tensors.size(); i++) {
                tensor(tensors.get(i), contents.get(i), mode, i == 0 ? "{" : ",{");
            }
            out.append("]}");
        }
    }

    private void tensor(Tensor tensor, String content, WeigFile.Mode mode, String start) {
        // The address modulo 65536; 0 where it is a multiple of that.
        int address = tensor.buffers().get(0).alignmentOffset(0, MOST_ALIGN);
        out.append(start).append("\"name\":").append(quote(tensor.name()))
                .append(",\"dtype\":\"").append(tensor.dtype()).append("\",\"shape\":[");
        String comma = "";
        for (long dim : tensor.shape()) {
            out.append(comma).append(dim);
            comma = ",";
        }
        out.append("],\"nbytes\":").append(tensor.byteSize()).append(content)
                .append(",\"backing\":\"").append(mode == WeigFile.Mode.MMAP ? "mmap" : "copy")
                .append("\",\"align\":")
                .append(address == 0 ? MOST_ALIGN : Integer.lowestOneBit(address)).append('}');
        if (out.length() > 1 << 16) {
            flush();
        }
    }

    /** The members that tell each tensor's canonical bytes. Aliases are hashed once. */
    private static List<String> contents(List<Tensor> tensors, String data) {
        List<String> contents = new ArrayList<>(tensors.size());
        Map<Long, String> known = new HashMap<>();
        for (Tensor tensor : tensors) {
            if (data.equals("none")) {
                contents.add("");
            } else {
                long key = tensor.byteSize() == 0 ? -1 : tensor.position();
                contents.add(known.computeIfAbsent(key, any ->
                        data.equals("hex") && tensor.byteSize() <= MOST_HEX
                                ? ",\"data\":\"" + hex(tensor) + '"'
                                : ",\"sha256\":\"" + sha256(tensor) + '"'));
            }
        }
        return contents;
    }

    private static String hex(Tensor tensor) {
        ByteBuffer all = ByteBuffer.allocate((int) tensor.byteSize());
        tensor.forEachChunk(ByteOrder.LITTLE_ENDIAN, all::put);
        return HexFormat.of().formatHex(all.array());
    }

    private static String sha256(Tensor tensor) {
        MessageDigest digest;
        try {
            digest = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e); // every Java platform has it
        }
        tensor.forEachChunk(ByteOrder.LITTLE_ENDIAN, digest::update);
        return HexFormat.of().formatHex(digest.digest());
    }

    private void status(String id, String status, String message) {
        out.append("{\"id\":").append(quote(id)).append(",\"status\":\"").append(status)
                .append("\",\"message\":").append(quote(message)).append('}');
    }

    /** A JSON string in ASCII; UTF-16 units past ASCII become escapes, surrogates in pairs. */
    static String quote(String text) {
        StringBuilder json = new StringBuilder(text.length() + 2).append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                json.append('\\').append(c);
            } else if (c >= 0x20 && c < 0x7F) {
                json.append(c);
            } else {
                json.append("\\u").append(HexFormat.of().toHexDigits(c));
            }
        }
        return json.append('"').toString();
    }

    private void flush() {
        byte[] ascii = out.toString().getBytes(StandardCharsets.US_ASCII);
        stdout.write(ascii, 0, ascii.length);
        out.setLength(0);
    }
}
