// What the generated Java parser says of files: an oracle on spec/weig.ksy.
//   mvn package && java -jar ../../../.build/kaitai-java/weig-oracle.jar < paths
// Reads paths, one a line; prints a line of JSON for each, as spec/generated/README.md tells.

import io.kaitai.struct.ByteBufferKaitaiStream;
import io.kaitai.struct.KaitaiStream;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.BufferUnderflowException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

final class Oracle {
    private static final int MOST_PAIRS = 2000; // records; pairs() takes quadratic time

    private Oracle() {}

    public static void main(String[] args) throws IOException {
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String path = in.readLine(); path != null; path = in.readLine()) {
            out.println(answer(path));
        }
        out.flush();
    }

    private static String answer(String path) {
        try {
            byte[] data = Files.readAllBytes(Paths.get(path));
            Weig.Container body = new Weig(new ByteBufferKaitaiStream(data)).body();
            String tensors = tensors(body);
            return "{\"accept\": true, \"tensors\": " + tensors + ", \"deep\": " + deep(body) + "}";
        } catch (KaitaiStream.KaitaiStructError error) {
            return rejected(check(error));
        } catch (IOException | BufferUnderflowException error) {
            return rejected("null"); // any other exception is a bug: the test sees the exit status
        }
    }

    /** Reads all that level open is about. */
    private static String tensors(Weig.Container body) {
        List<String> rows = new ArrayList<>();
        for (Weig.Container.Tensor t : body.tensors()) {
            String dims = t.shape().dims().stream()
                .map(dim -> Long.toString(dim.len()))
                .collect(Collectors.joining(", ", "[", "]"));
            t.nameChars();
            rows.add(String.format(
                "[%s, %d, %s, %d, %d]", quoted(t.name()), t.dtype().id(), dims, t.ofsData(), t.lenData()));
        }
        if (rows.size() <= MOST_PAIRS) {
            body.pairs();
        }
        return "[" + String.join(", ", rows) + "]";
    }

    private static String deep(Weig.Container body) {
        try {
            body.tensors().forEach(Weig.Container.Tensor::bools);
            return "null";
        } catch (KaitaiStream.KaitaiStructError error) {
            return check(error);
        }
    }

    private static String rejected(String check) {
        return "{\"accept\": false, \"check\": " + check + "}";
    }

    /** The path of the check that failed: the runtime puts it before the first colon. */
    private static String check(KaitaiStream.KaitaiStructError error) {
        return quoted(error.getMessage().split(":", 2)[0]);
    }

    private static String quoted(String text) {
        return text.chars()
            .mapToObj(unit -> String.format("\\u%04x", unit))
            .collect(Collectors.joining("", "\"", "\""));
    }
}
