package weig;

/** The closed list of section 14. The constants' names are the codes. */
public enum ErrorCode {
    IO,
    NOT_REGULAR_FILE,
    TOO_LARGE,
    TOO_SMALL,
    BAD_MAGIC,
    BAD_VERSION,
    UNKNOWN_FLAG,
    BAD_RESERVED,
    TRUNCATED,
    TRAILING_DATA,
    BAD_FILE_SIZE,
    BAD_SENTINEL,
    BAD_META_TABLE,
    BAD_DATA_REGION,
    MISALIGNED,
    BAD_DTYPE,
    BAD_NAME,
    DUPLICATE_NAME,
    BAD_SHAPE,
    BAD_DATA_SIZE,
    BAD_DATA_RANGE,
    OVERLAP,
    NUMBER_TOO_LARGE,
    NONZERO_PADDING,
    BAD_BOOL,
    MODIFIED,
    CLOSED,
    NO_SUCH_TENSOR,
    UNSUPPORTED
}
