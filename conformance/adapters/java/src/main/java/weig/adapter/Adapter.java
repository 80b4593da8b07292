package weig.adapter;

import com.google.gson.stream.JsonWriter;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import weig.ErrorCode;
import weig.Tensor;
import weig.WeigException;
import weig.WeigFile;

/** Answers the requests of the conformance suite: a line in, a JSON object on one line out. */
public final class Adapter {
    private static final int MOST_HEX = 4096;
    private static final int MOST_ALIGN = 65536;
    private static final Map<String, List<String>> VALUES = Map.of(
            "data", List.of("none", "sha256", "hex"), "via", List.of("mmap", "read"), "level", List.of("open", "deep"));

    /** A file, and how it was opened. */
    private record Opened(WeigFile file, WeigFile.Mode mode) {}

    /** A request that cannot be done here. */
    private static final class Unsupported extends Exception {
        private static final long serialVersionUID = 1L;

        Unsupported(String message) {
            super(message);
        }
    }

    /** What the last {@code open} left open; null where it did not. */
    private static Opened held;

    private Adapter() {}

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        System.setOut(System.err); // standard output is the protocol's: no stray println may get there
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            var json = new JsonWriter(out);
            json.setSerializeNulls(false); // a key without a value is left out
            answer(json.beginObject(), line.split("\t", -1));
            json.endObject().flush();
            out.write('\n');
            out.flush();
        }
    }

    private static void answer(JsonWriter json, String[] words) throws IOException {
        String id = words.length > 1 ? words[1] : "";
        try {
            switch (words[0]) {
                case "hello" -> hello(json);
                case "load", "open" -> load(json, id, words);
                case "check" -> {
                    held().file.checkUnmodified();
                    status(json, id, "unmodified", null);
                }
                case "access" -> accept(json, id, held(), options(words, 2).get("data"));
                default -> throw new Unsupported("no such verb here");
            }
        } catch (Unsupported e) {
            status(json, id, "unsupported", e.getMessage());
        } catch (WeigException e) { // the only way to a "rejected"
            if (e.code() == ErrorCode.UNSUPPORTED) {
                status(json, id, "unsupported", e.getMessage());
            } else {
                status(json, id, "rejected", e.getMessage());
                json.name("error").value(e.code().name()).name("field").value(e.field());
            }
        } catch (RuntimeException | Error e) { // a fault of ours, and said to be one
            e.printStackTrace();
            status(json, id, "internal", WeigException.escape(e.toString()));
        }
    }

    private static void status(JsonWriter json, String id, String status, String message) throws IOException {
        json.name("id").value(id).name("status").value(status).name("message").value(message);
    }

    private static void hello(JsonWriter json) throws IOException {
        json.name("protocol").value(1).name("language").value("java");
        json.name("loader").value("weig-java").name("version").value("1.0.0");
        json.name("spec").beginArray().value("1").endArray();
        json.name("profiles").beginArray();
        for (String profile : List.of("core", "data", "big-endian", "mmap", "deep", "held-mmap", "held-read")) {
            json.value(profile);
        }
        json.endArray();
    }

    private static Map<String, String> options(String[] words, int from) throws Unsupported {
        var options = new HashMap<>(Map.of("data", "none", "via", "mmap", "level", "open"));
        for (int i = from; i < words.length; i++) {
            int equals = words[i].indexOf('=');
            String key = words[i].substring(0, Math.max(equals, 0));
            String value = words[i].substring(equals + 1);
            if (!VALUES.getOrDefault(key, List.of(value)).contains(value)) {
                throw new Unsupported("this value is not known: " + words[i]);
            }
            options.put(key, value);
        }
        return options;
    }

    private static void load(JsonWriter json, String id, String[] words) throws IOException, Unsupported {
        if (words.length < 3) {
            throw new Unsupported("an id and a path are needed");
        }
        if (held != null) {
            held.file.close();
            held = null;
        }
        var options = options(words, 3);
        var mode = WeigFile.Mode.valueOf(options.get("via").toUpperCase(Locale.ROOT));
        var level = WeigFile.Level.valueOf(options.get("level").toUpperCase(Locale.ROOT));
        var opened = new Opened(WeigFile.open(Path.of(words[2]), mode, level), mode);
        try {
            accept(json, id, opened, options.get("data"));
            if (words[0].equals("open")) {
                held = opened;
            }
        } finally {
            if (held == null) {
                opened.file.close();
            }
        }
    }

    private static Opened held() throws Unsupported {
        if (held == null) {
            throw new Unsupported("no file is held open");
        }
        return held;
    }

    private static void accept(JsonWriter json, String id, Opened opened, String data) throws IOException {
        var tensors = opened.file.tensors().values();
        // All that can fail comes before the first key of the answer. Aliases are hashed once.
        var contents = new HashMap<Long, String>();
        if (!data.equals("none")) {
            for (Tensor tensor : tensors) {
                contents.computeIfAbsent(place(tensor), place -> isHex(tensor, data) ? hex(tensor) : sha256(tensor));
            }
        }
        json.name("id").value(id).name("status").value("accepted").name("byte_order");
        json.value(opened.file.byteOrder() == ByteOrder.BIG_ENDIAN ? "big" : "little");
        json.name("count").value(tensors.size()).name("tensors").beginArray();
        for (Tensor tensor : tensors) {
            json.beginObject().name("name").value(tensor.name());
            json.name("dtype").value(tensor.dtype().name()).name("shape").beginArray();
            for (long dim : tensor.shape()) {
                json.value(dim);
            }
            json.endArray().name("nbytes").value(tensor.byteSize());
            json.name(isHex(tensor, data) ? "data" : "sha256").value(contents.get(place(tensor)));
            json.name("backing").value(opened.mode == WeigFile.Mode.MMAP ? "mmap" : "copy");
            json.name("align").value(align(tensor)).endObject();
        }
        json.endArray();
    }

    /** Where a tensor's content lies: the same for aliases, and for all empty ones. */
    private static long place(Tensor tensor) {
        return tensor.byteSize() == 0 ? -1 : tensor.position();
    }

    private static boolean isHex(Tensor tensor, String data) {
        return data.equals("hex") && tensor.byteSize() <= MOST_HEX;
    }

    private static String hex(Tensor tensor) {
        ByteBuffer all = ByteBuffer.allocate((int) tensor.byteSize());
        tensor.forEachChunk(ByteOrder.LITTLE_ENDIAN, all::put);
        return HexFormat.of().formatHex(all.array());
    }

    private static String sha256(Tensor tensor) {
        try {
            var digest = MessageDigest.getInstance("SHA-256");
            tensor.forEachChunk(ByteOrder.LITTLE_ENDIAN, digest::update);
            return HexFormat.of().formatHex(digest.digest());
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e); // every Java platform has it
        }
    }

    private static int align(Tensor tensor) {
        int address = tensor.buffers().get(0).alignmentOffset(0, MOST_ALIGN); // modulo that
        return address == 0 ? MOST_ALIGN : Integer.lowestOneBit(address);
    }
}
