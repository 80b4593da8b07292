package weig;

import java.io.IOException;

/** A refusal: one code of section 14, and words for people (OPEN-13). */
public final class WeigException extends IOException {
    private static final long serialVersionUID = 1L;

    private final ErrorCode code;
    private final String field;

    WeigException(ErrorCode code, String field, String message) {
        super(message);
        this.code = code;
        this.field = field;
    }

    WeigException(ErrorCode code, IOException cause) {
        // The text of the system may hold the path, which is anybody's text.
        super(escape(cause.getClass().getSimpleName() + ": " + cause.getMessage()), cause);
        this.code = code;
        this.field = "";
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
        StringBuilder safe = new StringBuilder(text.length());
        text.codePoints().forEach(c -> {
            if (c == '\\') {
                safe.append("\\\\");
            } else if (c >= 0x20 && c < 0x7F) {
                safe.append((char) c);
            } else {
                safe.append(String.format("\\u{%x}", c));
            }
        });
        return safe.toString();
    }
}
