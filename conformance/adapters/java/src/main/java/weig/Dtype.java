package weig;

/** The element types of section 8, in the order of their codes. */
public enum Dtype {
    F32(4, 4),
    F16(2, 2),
    BF16(2, 2),
    I8(1, 1),
    U8(1, 1),
    I32(4, 4),
    F64(8, 8),
    I64(8, 8),
    I16(2, 2),
    U16(2, 2),
    U32(4, 4),
    U64(8, 8),
    BOOL(1, 1),
    F8_E4M3(1, 1),
    F8_E5M2(1, 1),
    F8_E8M0(1, 1),
    C64(8, 4),
    F8_E4M3FNUZ(1, 1),
    F8_E5M2FNUZ(1, 1);

    /** The size of an element in bytes. */
    public final int bytes;

    /** How many bytes a change of byte order reverses together. */
    public final int unit;

    Dtype(int bytes, int unit) {
        this.bytes = bytes;
        this.unit = unit;
    }
}
