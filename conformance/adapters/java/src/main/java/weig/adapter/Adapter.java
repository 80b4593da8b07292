package weig.adapter;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.io.Writer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import weig.Tensor;
import weig.WeigException;
import weig.WeigFile;
import weig.WeigFile.Option;

/** Answers the requests of the conformance suite: a line in, a JSON object on one line out. */
public final class Adapter {
    private static final int MOST_HEX = 4096;
    private static final int MOST_ALIGN = 65536;
    private static final Set<String> CHOICES =
            Set.of("data=none", "data=sha256", "data=hex", "via=mmap", "via=read", "level=open", "level=deep");

    private static final String HELLO = """
            {"protocol": 1, "loader": "weig-java", "version": "1.0.0", "language": "java", "spec": ["1"], \
            "profiles": ["core", "data", "big-endian", "mmap", "deep", "held-mmap", "held-read"]}""";

    /** A file, and how it was opened. */
    private record Opened(WeigFile file, String backing) {}

    /** What the last {@code open} left open; null where it did not. */
    private static Opened held;

    private Adapter() {}

    public static void main(String[] args) throws IOException {
        var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var out = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        System.setOut(System.err); // standard output is the protocol's: no stray println may get there
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = (line + "\t").split("\t", -1); // an id, also where the request has none
            if (words[0].equals("hello")) {
                out.write(HELLO);
            } else {
                write(out, reply(words[0], words[1], words));
            }
            out.write('\n');
            out.flush();
        }
    }

    private static Object[] reply(String verb, String id, String[] words) throws IOException {
        try {
            return answer(verb, id, words);
        } catch (WeigException e) { // the only way to a "rejected"
            return object("id", id, "status", "rejected", "error", e.code(), "message", e.getMessage());
        } catch (RuntimeException | Error e) { // a fault of ours, and said to be one
            e.printStackTrace();
            return object("id", id, "status", "internal", "message", WeigException.escape(e.toString()));
        }
    }

    private static Object[] answer(String verb, String id, String[] words) throws IOException {
        var options = new HashMap<>(Map.of("data", "none", "via", "mmap", "level", "open"));
        for (String word : words) { // no verb, id or path looks like an option that is known
            String[] pair = word.split("=", 2);
            if (pair.length == 2 && options.replace(pair[0], pair[1]) != null && !CHOICES.contains(word)) {
                return object("id", id, "status", "unsupported", "message", WeigException.escape(word));
            }
        }
        if ((verb.equals("load") || verb.equals("open")) && words.length > 3) {
            return load(verb, id, Path.of(words[2]), options);
        } else if (verb.equals("check") && held != null) {
            held.file.checkUnmodified();
            return object("id", id, "status", "unmodified");
        } else if (verb.equals("access") && held != null) {
            return accepted(id, held, options.get("data"));
        }
        return object("id", id, "status", "unsupported", "message", "no such verb here, or no file is held open");
    }

    private static Object[] load(String verb, String id, Path path, Map<String, String> options) throws IOException {
        release();
        var how = EnumSet.noneOf(Option.class);
        if (options.get("via").equals("read")) {
            how.add(Option.READ);
        }
        if (options.get("level").equals("deep")) {
            how.add(Option.DEEP);
        }
        var file = WeigFile.open(path, how.toArray(Option[]::new));
        held = new Opened(file, how.contains(Option.READ) ? "copy" : "mmap");
        try {
            return accepted(id, held, options.get("data"));
        } finally {
            if (!verb.equals("open")) {
                release(); // its tensors stay
            }
        }
    }

    private static void release() throws IOException {
        if (held != null) {
            held.file.close();
            held = null;
        }
    }

    private static Object[] accepted(String id, Opened opened, String data) throws WeigException {
        var tensors = opened.file.tensors().values();
        var order = opened.file.byteOrder() == ByteOrder.BIG_ENDIAN ? "big" : "little";
        var contents = new HashMap<Long, String>(); // all that can fail comes first; aliases are hashed once
        if (!data.equals("none")) {
            for (Tensor tensor : tensors) {
                contents.computeIfAbsent(place(tensor), place -> isHex(tensor, data) ? hex(tensor) : sha256(tensor));
            }
        }
        Stream<Object[]> list = tensors.stream().map(tensor -> {
            boolean hex = isHex(tensor, data);
            String content = contents.get(place(tensor));
            return object(
                    "name", tensor.name(),
                    "dtype", tensor.dtype().name(),
                    "shape", tensor.shape(),
                    "nbytes", tensor.byteSize(),
                    "backing", opened.backing(),
                    "align", align(tensor),
                    "data", hex ? content : null,
                    "sha256", hex ? null : content);
        });
        return object("id", id, "status", "accepted", "byte_order", order, "count", tensors.size(), "tensors", list);
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

    /** A JSON object, as its keys and values in turn. */
    private static Object[] object(Object... pairs) {
        return pairs;
    }

    /** Writes an object without the keys that have no value, a list of any kind, a string, or a whole number. */
    private static void write(Writer out, Object value) throws IOException {
        if (value instanceof Object[] pairs) {
            String before = "{";
            for (int i = 0; i < pairs.length; i += 2) {
                if (pairs[i + 1] != null) {
                    out.write(before);
                    write(out, pairs[i]);
                    out.write(':');
                    write(out, pairs[i + 1]);
                    before = ",";
                }
            }
            out.write('}');
        } else if (value instanceof Stream<?> list) {
            String before = "[";
            for (var items = list.iterator(); items.hasNext(); ) {
                out.write(before);
                write(out, items.next());
                before = ",";
            }
            out.write(before.equals("[") ? "[]" : "]");
        } else if (value instanceof long[] shape) {
            out.write(Arrays.toString(shape));
        } else if (value instanceof String text) {
            out.write('"');
            for (int i = 0; i < text.length(); i++) {
                char c = text.charAt(i);
                if (c < ' ' || c == '"' || c == '\\') {
                    out.write(String.format("\\u%04x", (int) c));
                } else {
                    out.write(c);
                }
            }
            out.write('"');
        } else {
            out.write(value.toString());
        }
    }
}
