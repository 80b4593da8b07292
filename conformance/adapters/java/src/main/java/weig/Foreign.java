package weig;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;

/** Names what a file without our magic is, where its first bytes tell (section 14, BAD_MAGIC). */
final class Foreign {
    private static final Map<String, String> STARTS = Map.of(
            "version https://git-lfs", "a git-LFS pointer: the file itself was not fetched",
            "<!DOCTYPE", "HTML: perhaps an error page that was saved",
            "<html", "HTML: perhaps an error page that was saved",
            "PK\3\4", "ZIP (PyTorch and npz files are)",
            "GGUF", "GGUF",
            "\u001f\u008b", "gzip",
            "\u0093NUMPY", "npy");

    private Foreign() {}

    static String describe(ByteBuffer header) {
        String start = new String(header.array(), StandardCharsets.ISO_8859_1);
        for (Map.Entry<String, String> known : STARTS.entrySet()) {
            String mark = known.getKey();
            if (start.regionMatches(true, 0, mark, 0, mark.length())) {
                return "this is " + known.getValue();
            }
        }
        if (start.charAt(8) == '{' && start.startsWith("\0\0", 6)) {
            return "this is safetensors";
        }
        return "the file starts with " + HexFormat.of().formatHex(header.array(), 0, 4);
    }
}
