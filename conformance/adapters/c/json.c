#include "json.h"

void json_string(FILE *out, const char *text) {
    putc('"', out);
    for (const char *at = text; *at != '\0'; at++) {
        const unsigned char byte = (unsigned char)*at;
        if (byte == '"' || byte == '\\')
            fprintf(out, "\\%c", byte);
        else if (byte < 0x20)
            fprintf(out, "\\u%04x", byte);
        else
            putc(byte, out);
    }
    putc('"', out);
}

void json_hex(FILE *out, const uint8_t *bytes, size_t size) {
    static const char digits[] = "0123456789abcdef";
    putc('"', out);
    for (size_t i = 0; i < size; i++) {
        putc(digits[bytes[i] >> 4], out);
        putc(digits[bytes[i] & 15], out);
    }
    putc('"', out);
}

void json_member(FILE *out, const char *key, const char *text) {
    fprintf(out, ", \"%s\": ", key);
    json_string(out, text);
}
