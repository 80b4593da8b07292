meta:
  id: weig
  title: WEIG tensor container, version 1
  file-extension: weig
  tags:
    - serialization
  license: CC0-1.0
  ks-version: '0.11'
  encoding: UTF-8
doc: |
  A WEIG file holds named, typed, shaped tensors, to be mapped into memory
  and used as they are. SPEC.md is the normative text; this is the part of
  it that a machine can run.

  Layout, in file order:

  * `header`: 64 bytes at offset 0
  * `tensors`: `num_tensors` records of 48 bytes at `ofs_tensors`
  * the aux area, from the end of the records to the header's `ofs_data`:
    names (NUL-terminated UTF-8) and shapes (arrays of 64-bit integers) in any
    order, at any alignment; two records may share them
  * tensor data, from the header's `ofs_data` on, each tensor at a multiple
    of 64
  * `sentinel`: the last 8 bytes of the file

  Every integer of a file, tensor elements included, is in one byte order,
  which the first byte tells: 47 49 45 57 is little-endian, 57 45 49 47 is
  big-endian. All offsets are counted from the start of the file.

  Numbers. Every count, offset, size and dimension is unsigned and at most
  2**53 - 1. They are read as signed here: with `min: 0` that is the same
  rule, and it compiles in languages where signed and unsigned do not mix.
  Flags and sentinel are read as halves, since JavaScript has no exact
  64-bit integers. Results of arithmetic are cast (`.as<s8>`), because
  Kaitai Struct would take them for smaller integers otherwise.

  Checks. A `check_...` field is an assertion: it holds no bytes, and
  `_.length == 0` says so (the Go target needs `_` to be used). The key
  `-weig-rule` names the rule of SPEC.md that a field breaks when it is not
  valid, `-weig-field` the field that the rule is about (by its name in
  SPEC.md, where that is not the `-orig-id`).

  * Constructing the root object checks the header and the sentinel.
  * Reading `body.tensors` checks every record, its name and its shape.
  * Reading `body.pairs` checks that names are unique and that data does not
    overlap. This takes quadratic time: other code should sort instead.
  * Reading `name_chars` of a tensor checks a name byte by byte: that it has
    no control character, and that it is UTF-8 (many targets decode a `str`
    leniently, so that `name` alone does not tell).
  * Reading `bools` of a tensor checks the values of BOOL elements, which is
    part of deep verification.
  * That padding is zero (PAD-1) is not said here.

  After any error, drop the object: what was read lazily may be incomplete.
doc-ref: SPEC.md
seq:
  - id: body
    type: container
instances:
  first_byte:
    -orig-id: magic
    -weig-rule: HDR-2
    pos: 0
    type: u1
    valid:
      any-of: [0x47, 0x57]
    doc: First byte of the magic, which tells the byte order.
  is_le:
    value: first_byte == 0x47
types:
  container:
    meta:
      endian:
        switch-on: _root.first_byte
        cases:
          0x47: le
          0x57: be
    seq:
      - id: header
        type: file_header
      - id: check_sentinel
        -weig-rule: TAIL-1
        -weig-field: sentinel
        size: 0
        valid:
          expr: _.length == 0 and sentinel.is_valid
    instances:
      tensors:
        pos: header.ofs_tensors
        type: tensor
        repeat: expr
        repeat-expr: header.num_tensors
        doc: The meta table.
        doc-ref: SPEC.md section 5
      sentinel:
        pos: header.len_file - 8
        type: end_mark
        doc-ref: SPEC.md section 11
      pairs:
        pos: 0
        type: pair_row(_index.as<s4>)
        repeat: expr
        repeat-expr: header.num_tensors
    types:
      file_header:
        -weig-path: header
        doc-ref: SPEC.md section 4
        seq:
          - id: magic
            -weig-rule: HDR-2
            type: u4
            valid: 0x57454947
          - id: check_least_size
            -weig-rule: HDR-1
            -weig-field: ''
            size: 0
            valid:
              expr: _.length == 0 and _io.size >= 72
          - id: version
            -weig-rule: HDR-3
            type: u4
            valid: 1
          - id: num_tensors
            -orig-id: tensor_count
            -weig-rule: NUM-2
            type: s8
            valid:
              min: 0
              max: '0x1fffffffffffff'
          - id: ofs_tensors
            -orig-id: meta_offset
            -weig-rule: NUM-2
            type: s8
            valid:
              min: 0
              max: '0x1fffffffffffff'
          - id: ofs_data
            -orig-id: data_offset
            -weig-rule: NUM-2
            type: s8
            valid:
              min: 0
              max: '0x1fffffffffffff'
          - id: len_file
            -orig-id: file_size
            -weig-rule: NUM-2
            type: s8
            valid:
              min: 0
              max: '0x1fffffffffffff'
          - id: flags
            type: flag_halves
          - id: reserved
            -weig-rule: HDR-8
            type: u8
            valid: 0
            repeat: expr
            repeat-expr: 2
          - id: check_file_size
            -weig-rule: HDR-4
            -weig-field: file_size
            size: 0
            valid:
              expr: _.length == 0 and len_file >= 72 and len_file % 8 == 0
          - id: check_not_truncated
            -weig-rule: HDR-5
            -weig-field: file_size
            size: 0
            valid:
              expr: _.length == 0 and _io.size >= len_file
          - id: check_no_trailing_data
            -weig-rule: HDR-6
            -weig-field: file_size
            size: 0
            valid:
              expr: _.length == 0 and _io.size <= len_file
          - id: check_tensors_after_header
            -weig-rule: META-1
            -weig-field: meta_offset
            size: 0
            valid:
              expr: _.length == 0 and ofs_tensors >= 64
          - id: check_tensors_aligned
            -weig-rule: META-2
            -weig-field: meta_offset
            size: 0
            valid:
              expr: _.length == 0 and ofs_tensors % 8 == 0
          - id: check_data_aligned
            -weig-rule: REGION-1
            -weig-field: data_offset
            size: 0
            valid:
              expr: _.length == 0 and ofs_data % 64 == 0
          - id: check_data_before_sentinel
            -weig-rule: REGION-2
            -weig-field: data_offset
            size: 0
            valid:
              expr: _.length == 0 and ofs_data <= len_file - 8
          - id: check_tensors_before_data
            -weig-rule: META-3
            -weig-field: meta_offset
            size: 0
            valid:
              expr: _.length == 0 and ofs_tensors <= ofs_data
          - id: check_tensors_fit
            -weig-rule: META-3
            -weig-field: tensor_count
            size: 0
            valid:
              expr: _.length == 0 and num_tensors <= (ofs_data - ofs_tensors) / 48
        instances:
          ofs_aux:
            value: (ofs_tensors + num_tensors * 48).as<s8>
            doc: End of the records, where the aux area starts.
          ofs_end:
            value: (len_file - 8).as<s8>
            doc: End of the data, where the sentinel starts.
      flag_halves:
        -weig-path: header
        doc: |
          64 flags. A reader must know those of the low half (bits 0 to 31)
          and may ignore those of the high half. Version 1 has none.
        seq:
          - id: first
            -weig-rule: HDR-7
            -weig-field: flags
            type: u4
            valid:
              expr: _ == 0 or not _root.is_le
          - id: second
            -weig-rule: HDR-7
            -weig-field: flags
            type: u4
            valid:
              expr: _ == 0 or _root.is_le
      end_mark:
        doc: |
          The 64-bit number 0x57454947454e4421 ("WEIGEND!") in the byte order
          of the file.
        seq:
          - id: first
            type: u4
          - id: second
            type: u4
        instances:
          is_valid:
            value: |
              _root.is_le
                ? first == 0x454e4421 and second == 0x57454947
                : first == 0x57454947 and second == 0x454e4421
      tensor:
        -weig-path: meta[]
        doc-ref: SPEC.md sections 5 to 10
        seq:
          - id: ofs_name
            -orig-id: name_offset
            -weig-rule: NUM-2
            type: s8
            valid:
              min: 0
              max: '0x1fffffffffffff'
          - id: dtype
            -weig-rule: DTYPE-1
            type: u4
            enum: element_type
            valid:
              in-enum: true
          - id: padding
            -orig-id: pad
            -weig-rule: META-4
            type: u4
            valid: 0
          - id: ofs_shape
            -orig-id: shape_offset
            -weig-rule: NUM-2
            type: s8
            valid:
              min: 0
              max: '0x1fffffffffffff'
          - id: num_dims
            -orig-id: shape_count
            -weig-rule: NUM-2
            type: s8
            valid:
              min: 0
              max: '0x1fffffffffffff'
          - id: ofs_data
            -orig-id: data_offset
            -weig-rule: NUM-2
            type: s8
            valid:
              min: 0
              max: '0x1fffffffffffff'
          - id: len_data
            -orig-id: data_size
            -weig-rule: NUM-2
            type: s8
            valid:
              min: 0
              max: '0x1fffffffffffff'
          - id: check_name_in_aux
            -weig-rule: NAME-1
            -weig-field: name_offset
            size: 0
            valid:
              expr: _.length == 0 and ofs_name >= header.ofs_aux and ofs_name < header.ofs_data
          - id: check_name_terminated
            -weig-rule: NAME-2
            -weig-field: name
            size: 0
            valid:
              expr: |
                _.length == 0 and
                (name_bytes.length.as<s8> < len_name_bytes or len_name_bytes == 1024)
          - id: check_name_length
            -weig-rule: NAME-3
            -weig-field: name
            size: 0
            valid:
              expr: _.length == 0 and name_bytes.length >= 1 and name_bytes.length <= 1023
          - id: check_name_decodes
            -weig-rule: NAME-4
            -weig-field: name
            size: 0
            valid:
              expr: _.length == 0 and name.length >= 1
            doc: Fails inside the decoder, where a target has a strict one.
          - id: check_rank
            -weig-rule: SHAPE-1
            -weig-field: shape_count
            size: 0
            valid:
              expr: _.length == 0 and num_dims <= 64
          - id: check_shape_in_aux
            -weig-rule: SHAPE-2
            -weig-field: shape_offset
            size: 0
            valid:
              expr: _.length == 0 and ofs_shape >= header.ofs_aux and ofs_shape <= header.ofs_data
          - id: check_shape_fits
            -weig-rule: SHAPE-2
            -weig-field: shape_count
            size: 0
            valid:
              expr: _.length == 0 and num_dims <= (header.ofs_data - ofs_shape) / 8
          - id: check_product_bytes
            -weig-rule: SHAPE-4
            -weig-field: shape
            size: 0
            valid:
              expr: _.length == 0 and shape.product <= 0x1fffffffffffff / len_element
          - id: check_data_size
            -weig-rule: SHAPE-5
            -weig-field: data_size
            size: 0
            valid:
              expr: _.length == 0 and shape.num_elements * len_element == len_data
          - id: check_data_aligned
            -weig-rule: DATA-1
            -weig-field: data_offset
            size: 0
            valid:
              expr: _.length == 0 and ofs_data % 64 == 0
          - id: check_data_in_region
            -weig-rule: DATA-2
            -weig-field: data_offset
            size: 0
            valid:
              expr: _.length == 0 and ofs_data >= header.ofs_data
          - id: check_data_starts_before_end
            -weig-rule: DATA-3
            -weig-field: data_offset
            size: 0
            valid:
              expr: _.length == 0 and ofs_data <= header.ofs_end
          - id: check_data_fits
            -weig-rule: DATA-3
            -weig-field: data_size
            size: 0
            valid:
              expr: _.length == 0 and len_data <= header.ofs_end - ofs_data
        instances:
          header:
            value: _parent.header
          len_name_bytes:
            value: |
              (header.ofs_data - ofs_name < 1024
                ? (header.ofs_data - ofs_name).as<s8>
                : 1024.as<s8>).as<s8>
            doc: The NUL of the name must be one of this many bytes.
          name_bytes:
            pos: ofs_name
            size: len_name_bytes
            terminator: 0
          name:
            value: name_bytes.to_s("UTF-8")
            doc: |
              To show. Compare `name_bytes`: some targets (JavaScript) drop a
              U+FEFF that starts a text.
          name_chars:
            pos: ofs_name
            type: utf8_char
            repeat: until
            repeat-until: _.lead == 0
          shape:
            pos: ofs_shape
            type: dimensions
          data:
            pos: ofs_data
            size: len_data
            doc: The raw elements, row-major; read only when asked for.
          bools:
            -orig-id: data
            -weig-rule: BOOL-1
            pos: ofs_data
            type: u1
            valid:
              max: 1
            repeat: expr
            repeat-expr: |
              (dtype == element_type::bool ? len_data : 0.as<s8>).as<s8>
          end_data:
            value: (ofs_data + len_data).as<s8>
          len_element:
            value: |
              (
                dtype == element_type::f64 or
                dtype == element_type::i64 or
                dtype == element_type::u64 or
                dtype == element_type::c64
                  ? 8
                  : dtype == element_type::f32 or
                    dtype == element_type::i32 or
                    dtype == element_type::u32
                    ? 4
                    : dtype == element_type::f16 or
                      dtype == element_type::bf16 or
                      dtype == element_type::i16 or
                      dtype == element_type::u16
                      ? 2
                      : 1
              ).as<s8>
            doc: Bytes per element.
      utf8_char:
        -weig-path: meta[].name
        doc: One character of a name, or the NUL behind it.
        doc-ref: SPEC.md section 7; RFC 3629 section 4
        seq:
          - id: lead
            -orig-id: ''
            -weig-rule: NAME-4
            type: u1
            valid:
              expr: _ <= 0x7f or (_ >= 0xc2 and _ <= 0xf4)
          - id: check_no_control
            -weig-rule: NAME-5
            -weig-field: ''
            size: 0
            valid:
              expr: |
                _.length == 0 and (lead == 0 or lead >= 0x20) and lead != 0x7f
          - id: second
            -orig-id: ''
            -weig-rule: NAME-4
            type: u1
            valid:
              expr: |
                _ >= (lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80) and
                _ <= (lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf)
            repeat: expr
            repeat-expr: 'lead >= 0xc2 ? 1 : 0'
            doc: |
              None or one. Its range leaves out overlong forms, surrogates (U+D800 to
              U+DFFF) and what is past U+10FFFF.
          - id: others
            -orig-id: ''
            -weig-rule: NAME-4
            type: u1
            valid:
              min: 0x80
              max: 0xbf
            repeat: expr
            repeat-expr: 'lead >= 0xf0 ? 2 : lead >= 0xe0 ? 1 : 0'
      dimensions:
        doc-ref: SPEC.md section 9
        seq:
          - id: dims
            type: dim(_index.as<s4>)
            repeat: expr
            repeat-expr: _parent.num_dims
        instances:
          product:
            value: |
              (dims.size == 0 ? 1.as<s8> : dims.last.product).as<s8>
            doc: Product of the dimensions that are not zero.
          num_elements:
            value: |
              (dims.size == 0 ? 1.as<s8> : dims.last.num_elements).as<s8>
            doc: Product of all dimensions.
      dim:
        -weig-path: meta[].shape[]
        params:
          - id: idx
            type: s4
        seq:
          - id: len
            -orig-id: ''
            -weig-rule: NUM-2
            type: s8
            valid:
              min: 0
              max: '0x1fffffffffffff'
          - id: check_product
            -weig-rule: SHAPE-4
            -weig-field: ''
            size: 0
            valid:
              expr: _.length == 0 and (len == 0 or product_before <= 0x1fffffffffffff / len)
            doc: Division, because the product itself could wrap.
        instances:
          product_before:
            value: |
              (idx == 0 ? 1.as<s8> : _parent.dims[idx - 1].product).as<s8>
          product:
            value: |
              (len == 0 ? product_before : product_before * len).as<s8>
            doc: Product of the dimensions up to here that are not zero.
          num_elements_before:
            value: |
              (idx == 0 ? 1.as<s8> : _parent.dims[idx - 1].num_elements).as<s8>
          num_elements:
            value: (num_elements_before * len).as<s8>
            doc: Product of the dimensions up to here; `product`, or 0.
      pair_row:
        doc: One record against all records before it, of which there are `num_columns`.
        params:
          - id: num_columns
            type: s4
        seq:
          - id: columns
            type: pair(num_columns, _index.as<s4>)
            repeat: expr
            repeat-expr: num_columns
      pair:
        -weig-path: meta[]
        params:
          - id: idx_a
            type: s4
          - id: idx_b
            type: s4
        seq:
          - id: check_names_differ
            -weig-rule: NAME-6
            -weig-field: name
            size: 0
            valid:
              expr: _.length == 0 and a.name_bytes != b.name_bytes
          - id: check_data_apart
            -weig-rule: DATA-4
            -weig-field: data_offset
            size: 0
            valid:
              expr: |
                _.length == 0 and (
                  a.end_data <= b.ofs_data or b.end_data <= a.ofs_data or
                  a.len_data == 0 or b.len_data == 0 or
                  a.ofs_data == b.ofs_data and a.len_data == b.len_data and
                  a.dtype == b.dtype
                )
            doc: Tensors share all of their bytes (aliases) or none.
        instances:
          a:
            value: _root.body.tensors[idx_a]
          b:
            value: _root.body.tensors[idx_b]
enums:
  element_type:
    0: f32
    1: f16
    2: bf16
    3: i8
    4: u8
    5: i32
    6: f64
    7: i64
    8: i16
    9: u16
    10: u32
    11: u64
    12: bool
    13: f8_e4m3
    14: f8_e5m2
    15: f8_e8m0
    16: c64
    17: f8_e4m3fnuz
    18: f8_e5m2fnuz
