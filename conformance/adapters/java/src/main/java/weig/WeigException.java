package weig;

import java.io.IOException;
import java.util.stream.Collectors;

/** A refusal: one code of section 14, and words for people (OPEN-13). */
public final class WeigException extends IOException {
    private static final long serialVersionUID = 1L;

    private final String code;

    WeigException(String code, String message) {
        this(code, message, null);
    }

    WeigException(String code, String message, Throwable cause) {
        super(message, cause);
        this.code = code;
    }

    /** The code, as section 14 writes it. */
    public String code() {
        return code;
    }

    /** Text that came from outside, made safe to show: printable ASCII only (OPEN-13). */
    public static String escape(String text) {
        return text.codePoints()
                .mapToObj(c -> c >= 0x20 && c < 0x7F && c != '\\' ? Character.toString(c) : String.format("\\u{%x}", c))
                .collect(Collectors.joining());
    }
}
