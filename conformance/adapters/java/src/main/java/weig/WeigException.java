package weig;

import java.io.IOException;
import java.util.stream.Collectors;

/** A refusal: one code of section 14, and words for people (OPEN-13). */
public final class WeigException extends IOException {
    private static final long serialVersionUID = 1L;

    private final ErrorCode code;
    private final String field;

    WeigException(ErrorCode code, String field, String message) {
        super(field.isEmpty() ? message : field + ": " + message);
        this.code = code;
        this.field = field;
    }

    /** What the operating system refused, as IO (OPEN-11); a refusal of ours stays what it is. */
    static WeigException of(IOException cause) {
        if (cause instanceof WeigException known) {
            return known;
        }
        // The text of the system may hold the path, which is anybody's text.
        var io = new WeigException(ErrorCode.IO, "", escape(cause.toString()));
        io.initCause(cause);
        return io;
    }

    public ErrorCode code() {
        return code;
    }

    /** The field that is wrong, such as {@code meta[3].data_offset}; empty where it is none. */
    public String field() {
        return field;
    }

    /** Text that came from outside, made safe to show: printable ASCII only (OPEN-13). */
    public static String escape(String text) {
        return text.codePoints()
                .mapToObj(c -> c >= 0x20 && c < 0x7F && c != '\\' ? Character.toString(c) : String.format("\\u{%x}", c))
                .collect(Collectors.joining());
    }
}
