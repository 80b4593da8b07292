/* adapter.c: the C library behind the adapter protocol (conformance/PROTOCOL.md).
 *
 * Reads requests from standard input, answers each with one line of JSON, and ends with the input.
 */
#define _POSIX_C_SOURCE 200809L /* getline, open_memstream */

#include "content.h"
#include "json.h"
#include "weig.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the largest file that has to load on a host of 32 bits, where 2 to 4 GiB hold it all. */
#define MAX_SIZE_32 (UINT64_C(1) << 30)

enum content { NONE, SHA256, HEX };

struct request {
    const char *id;
    const char *path;
    enum content content;
    bool deep;
    bool hold; /* keeps the file open */
    weig_mode mode;
};

/* --- answers --- */

static void begin_answer(FILE *out, const char *id, const char *status) {
    fputs("{\"id\": ", out);
    json_string(out, id);
    json_member(out, "status", status);
}

static void write_shape(FILE *out, const weig_tensor *tensor) {
    fputs(", \"shape\": [", out);
    for (uint32_t i = 0; i < tensor->rank; i++)
        fprintf(out, "%s%" PRIu64, i == 0 ? "" : ", ", tensor->shape[i]);
    putc(']', out);
}

/* The bytes of a tensor that has at most MAX_DATA of them. */
static weig_code write_data(
    FILE *out, const weig_file *file, const weig_tensor *tensor, weig_mode mode,
    weig_error *error) {
    struct elements elements;
    const weig_code code = content_get(file, tensor, mode, &elements, error);
    if (code != WEIG_OK)
        return code;
    uint8_t bytes[MAX_DATA];
    content_canonical(bytes, elements.data, (size_t)elements.size, elements.unit);
    weig_memory_release(elements.memory);
    fputs(", \"data\": ", out);
    json_hex(out, bytes, (size_t)elements.size);
    return WEIG_OK;
}

/* `told` is NULL where the content is not asked for, and is not touched then. */
static weig_code write_tensor(
    FILE *out, const struct request *request, const weig_file *file, const weig_tensor *tensor,
    const struct told *told, weig_error *error) {
    const bool copied = told != NULL ? told->copied : request->mode == WEIG_READ;
    fputs("{\"name\": ", out);
    json_string(out, tensor->name);
    json_member(out, "dtype", weig_dtype_of(tensor->dtype)->name);
    write_shape(out, tensor);
    fprintf(out, ", \"nbytes\": %" PRIu64, tensor->size);
    json_member(out, "backing", copied ? "copy" : "mmap");
    fprintf(
        out, ", \"align\": %" PRIu64, told != NULL ? told->align : content_alignment(tensor->data));
    weig_code code = WEIG_OK;
    if (request->content == HEX && tensor->size <= MAX_DATA) {
        code = write_data(out, file, tensor, request->mode, error);
    } else if (told != NULL) {
        fputs(", \"sha256\": ", out);
        json_hex(out, told->digest, sizeof told->digest);
    }
    putc('}', out);
    return code;
}

static weig_code write_tensors(
    FILE *out, const struct request *request, const weig_file *file, const struct told *told,
    weig_error *error) {
    fputs(", \"tensors\": [", out);
    for (uint64_t i = 0; i < weig_count(file); i++) {
        weig_tensor tensor;
        weig_code code = weig_tensor_at(file, i, &tensor, error);
        if (code != WEIG_OK)
            return code;
        fputs(i == 0 ? "" : ", ", out);
        code = write_tensor(out, request, file, &tensor, told == NULL ? NULL : &told[i], error);
        if (code != WEIG_OK)
            return code;
    }
    putc(']', out);
    return WEIG_OK;
}

static weig_code
accept_file(FILE *out, const struct request *request, const weig_file *file, weig_error *error) {
    struct told *told = NULL;
    weig_code code = WEIG_OK;
    if (request->content != NONE)
        code = content_tell(file, request->mode, &told, error);
    if (code == WEIG_OK) {
        begin_answer(out, request->id, "accepted");
        json_member(out, "byte_order", weig_is_big_endian(file) ? "big" : "little");
        fprintf(out, ", \"count\": %" PRIu64, weig_count(file));
        code = write_tensors(out, request, file, told, error);
        putc('}', out);
    }
    free(told);
    return code;
}

static void refuse(FILE *out, const char *id, const weig_error *error) {
    begin_answer(out, id, error->code == WEIG_UNSUPPORTED ? "unsupported" : "rejected");
    json_member(out, "error", weig_code_name(error->code));
    json_member(out, "message", error->message);
    if (error->field[0] != '\0')
        json_member(out, "field", error->field);
    putc('}', out);
}

/* Every name must lead to its own record. */
static bool finds_all(const weig_file *file) {
    for (uint64_t i = 0; i < weig_count(file); i++) {
        weig_tensor tensor;
        if (weig_tensor_at(file, i, &tensor, NULL) != WEIG_OK ||
            weig_find(file, tensor.name, tensor.name_size) != (int64_t)i)
            return false;
    }
    return true;
}

/* --- requests --- */

/* The field up to the next TAB, which ends it; NULL where there is none left. */
static char *next_field(char **rest) {
    char *const field = *rest;
    char *const tab = field == NULL ? NULL : strchr(field, '\t');
    *rest = tab == NULL ? NULL : tab + 1;
    if (tab != NULL)
        *tab = '\0';
    return field;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* False for a value that is not known. A key that is not known is ignored. */
static bool read_key(struct request *request, const char *field) {
    if (strcmp(field, "data=sha256") == 0)
        request->content = SHA256;
    else if (strcmp(field, "data=hex") == 0)
        request->content = HEX;
    else if (strcmp(field, "level=deep") == 0)
        request->deep = true;
    else if (strcmp(field, "via=read") == 0)
        request->mode = WEIG_READ;
    else if (
        strcmp(field, "data=none") != 0 && strcmp(field, "level=open") != 0 &&
        strcmp(field, "via=mmap") != 0)
        return !begins(field, "data=") && !begins(field, "level=") && !begins(field, "via=");
    return true;
}

static void hello(FILE *out) {
    fputs("{\"protocol\": 1, \"loader\": \"weig-c\"", out);
    json_member(out, "version", ADAPTER_VERSION);
    fputs(
        ", \"language\": \"c\", \"spec\": [\"1\"]"
        ", \"profiles\": [\"core\", \"data\", \"big-endian\", \"deep\", \"mmap\""
        ", \"held-mmap\", \"held-read\"], \"dtypes\": [",
        out);
    const weig_dtype *dtype;
    for (uint32_t code = 0; (dtype = weig_dtype_of(code)) != NULL; code++) {
        fputs(code == 0 ? "" : ", ", out);
        json_string(out, dtype->name);
    }
    fputs("], \"limits\": {", out);
    if (sizeof(void *) == 4)
        fprintf(out, "\"max_size\": %" PRIu64, MAX_SIZE_32);
    fputs("}}", out);
}

/* The file of the last `open`, and how it was opened; NULL where there is none. */
static struct {
    weig_file *file;
    weig_mode mode;
} held;

static void let_go(void) {
    weig_close(held.file);
    held.file = NULL;
}

/* Each of these writes the answer to one request into `out`. Where it does not give WEIG_OK, what
 * it wrote is void. */
typedef weig_code answerer(FILE *out, const struct request *request, weig_error *error);

static weig_code load(FILE *out, const struct request *request, weig_error *error) {
    let_go();
    weig_file *file;
    weig_code code = weig_open(request->path, request->mode, &file, error);
    if (code == WEIG_OK && request->deep)
        code = weig_verify(file, NULL, NULL, error);
    if (code == WEIG_OK && !finds_all(file)) {
        begin_answer(out, request->id, "internal");
        json_member(out, "message", "a name does not lead to its record");
        putc('}', out);
    } else if (code == WEIG_OK) {
        code = accept_file(out, request, file, error);
        if (code == WEIG_OK)
            code = weig_check_unmodified(file, error);
    }
    if (code == WEIG_OK && request->hold) {
        held.file = file;
        held.mode = request->mode;
    } else {
        weig_close(file);
    }
    return code;
}

static weig_code check(FILE *out, const struct request *request, weig_error *error) {
    begin_answer(out, request->id, "unmodified");
    putc('}', out);
    return weig_check_unmodified(held.file, error);
}

static weig_code access_held(FILE *out, const struct request *request, weig_error *error) {
    return accept_file(out, request, held.file, error);
}

/* An answer is made in memory first: a refusal may come late. False where there is no memory. */
static bool write_answer(answerer *write, const struct request *request) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL)
        return false;
    weig_error error;
    weig_code code = write(out, request, &error);
    if (fclose(out) != 0 && code == WEIG_OK)
        code = content_no_memory(&error);
    if (code == WEIG_OK)
        fwrite(text, 1, size, stdout);
    else
        refuse(stdout, request->id, &error);
    free(text);
    return true;
}

/* False where there is no memory to answer with. */
static bool answer(char *line) {
    char *rest = line;
    const char *verb = next_field(&rest);
    const char *id = next_field(&rest);
    if (strcmp(verb, "hello") == 0) {
        hello(stdout);
        return true;
    }
    struct request request = {.id = id, .mode = WEIG_MMAP};
    answerer *write = NULL;
    if (strcmp(verb, "load") == 0 || strcmp(verb, "open") == 0) {
        request.path = next_field(&rest);
        request.hold = strcmp(verb, "open") == 0;
        if (request.path != NULL)
            write = load;
    } else if (held.file != NULL && id != NULL) {
        request.mode = held.mode;
        if (strcmp(verb, "check") == 0)
            write = check;
        else if (strcmp(verb, "access") == 0)
            write = access_held;
    }
    bool known = write != NULL;
    for (const char *key; known && (key = next_field(&rest)) != NULL;)
        known = read_key(&request, key);
    if (!known) {
        begin_answer(stdout, id == NULL ? "" : id, "unsupported");
        putc('}', stdout);
        return true;
    }
    return write_answer(write, &request);
}

int main(void) {
    char *line = NULL;
    size_t room = 0;
    bool good = true;
    for (ssize_t size; good && (size = getline(&line, &room, stdin)) > 0;) {
        if (line[size - 1] == '\n')
            line[size - 1] = '\0';
        good = answer(line) && putc('\n', stdout) != EOF && fflush(stdout) == 0;
    }
    free(line);
    let_go();
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
