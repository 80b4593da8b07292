/* json.h: the strings of an answer. */
#ifndef JSON_H
#define JSON_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A JSON string, quotes included, of UTF-8. */
void json_string(FILE *out, const char *text);

/* A JSON string of lower-case hex digits. */
void json_hex(FILE *out, const uint8_t *bytes, size_t size);

/* `, "key": "text"` */
void json_member(FILE *out, const char *key, const char *text);

#endif
