/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files: record files (TFRecord), fixed-length records and lines of text as datasets, tf.Example,
 * arrays of NumPy; and writing records and examples.
 *
 *     const char *files[] = { "train-0.tfrecord", "train-1.tfrecord" };
 *     co_dataset *ds = co_dataset_batch(ctx, co_dataset_tfrecord(ctx, files, 2, NULL), 256, false);
 *     CO_EACH(ctx, records, co_iterate(ctx, ds)) {
 *         co_value *example = co_parse_example(ctx, records, features, 2);
 *         ...
 *     }
 *
 * A dataset of files keeps copies of the names. Making it opens nothing: a file is opened when its
 * first element is asked for, and a missing one is an error of that co_next. Files are read one
 * after another (several at a time: co_dataset_interleave over their names, with opens_files and
 * num_parallel_calls); elements are scalars of CO_STRING. Errors name the kind of dataset, the
 * file, the record and its offset (in a compressed file: in what it decompresses to). After an
 * error, the next element is the first of the next file:
 *
 *   CO_NOT_FOUND          there is no such file
 *   CO_PERMISSION_DENIED  it may not be read
 *   CO_DATA_LOSS          a wrong checksum, a record that is cut off, a wrong compression, a file
 *                         that shrank while it was read; after the intact records
 *   CO_INVALID_ARGUMENT   a directory; a body that is not a multiple of the record size
 *   CO_UNIMPLEMENTED      a compressed file, and a library that was built without zlib
 *
 * Rules: GEN-ERR-5, DS-ITER-8.
 */
#ifndef COHORT_FILES_H
#define COHORT_FILES_H

#include <cohort/dataset.h>

CO_EXTERN_C_BEGIN

typedef enum co_compression {
    CO_COMPRESSION_NONE = 0,
    CO_COMPRESSION_GZIP, /* the format of gzip; several members may follow each other */
    CO_COMPRESSION_ZLIB
} co_compression;

/** Options of files that are read or written. Start from the initialiser. */
typedef struct co_file_options {
    size_t         struct_size;
    co_compression compression;
    size_t         buffer_bytes; /* read at a time where records are small; 0: 256 KiB */
} co_file_options;
#define CO_FILE_OPTIONS_INIT { sizeof(co_file_options), CO_COMPRESSION_NONE, 0 }

/* Sources. `options` may be NULL. CO_INVALID_ARGUMENT for a name that is NULL or an unknown
 * compression. */

/**
 * The records of TFRecord files, checksums verified. A file that ends inside the 12-byte header of
 * a record just ends. Batches of records are read straight into their final place.
 */
CO_API co_dataset *co_dataset_tfrecord(co_context *ctx, const char *const *files, size_t num_files,
                                       const co_file_options *options);
/** The lines of text files, without "\n" and without any "\r", as in TensorFlow; the last one needs
 * no end. */
CO_API co_dataset *co_dataset_text_lines(co_context *ctx, const char *const *files,
                                         size_t num_files, const co_file_options *options);
/** Options of files of fixed-length records. Start from the initialiser. */
typedef struct co_fixed_length_options {
    size_t                 struct_size;
    /* compression, buffer; NULL: the defaults. Borrowed for the call */
    const co_file_options *file;
    int64_t                header_bytes; /* skipped at the beginning of every file */
    int64_t                footer_bytes; /* skipped at its end */
} co_fixed_length_options;
#define CO_FIXED_LENGTH_OPTIONS_INIT { sizeof(co_fixed_length_options), NULL, 0, 0 }
/**
 * Records of record_bytes each (1 or more), between the header and the footer of every file.
 * CO_INVALID_ARGUMENT from co_next if these bytes are not a multiple of record_bytes.
 */
CO_API co_dataset *co_dataset_fixed_length_records(co_context *ctx, const char *const *files,
                                                   size_t num_files, int64_t record_bytes,
                                                   const co_fixed_length_options *options);

/** A column of CSV files. */
typedef struct co_csv_column {
    co_dtype  dtype;   /* CO_INT32, CO_INT64, CO_FLOAT32, CO_FLOAT64 or CO_STRING */
    /* what an empty field stands for, a scalar or host value; NULL: an error. Borrowed for the
     * call */
    co_value *missing;
} co_csv_column;

/** Options of CSV files. Start from the initialiser. */
typedef struct co_csv_options {
    size_t                 struct_size;
    /* compression, buffer; NULL: the defaults. Borrowed for the call */
    const co_file_options *file;
    bool                   header;    /* the first row of every file is skipped */
    char                   delimiter; /* between fields */
    /* a field of this text counts as empty; NULL: none. Borrowed for the call */
    const char            *na_value;
} co_csv_options;
#define CO_CSV_OPTIONS_INIT { sizeof(co_csv_options), NULL, false, ',', NULL }

/**
 * The rows of CSV files (RFC 4180) as tuples of scalars, one for each column; batches have a column
 * each. A field may be in double quotes, and then hold delimiters, line ends and doubled quotes.
 * Numbers have a decimal point in every locale, and may have blanks around them.
 *
 * CO_INVALID_ARGUMENT, from co_next, for a row of another number of fields, a field that is not a
 * number of its dtype, an empty one that is required, or wrong quotes, naming file, row and column;
 * the next element is the next row. Quotes that are not at the beginning of a field are wrong (5"
 * disk is written "5"" disk"), and so are quotes that are not followed by a delimiter, or that
 * never end: then the next row is the next line. co_dataset_batch says what happens to a batch with
 * a wrong row.
 */
CO_API co_dataset *co_dataset_csv(co_context *ctx, const char *const *files, size_t num_files,
                                  const co_csv_column *columns, size_t num_columns,
                                  const co_csv_options *options);

typedef struct co_list_files_options {
    size_t   struct_size;
    bool     shuffle; /* by a co_dataset_shuffle with the seed, after the shard of a worker if
                       * workers divide the names; false: sorted by bytes */
    uint64_t seed;
} co_list_files_options;
#define CO_LIST_FILES_OPTIONS_INIT { sizeof(co_list_files_options), false, 0 }

/**
 * The names of the files that match patterns as of a shell (* ? []), each once: strings, one by
 * one.
 *
 * Scope:    this process.
 * Context:  any.
 * Blocks:   while the folders are read, by this call.
 * Returns:  a dataset of ctx's block, or NULL with CO_INVALID_ARGUMENT if nothing matches.
 */
CO_API co_dataset *co_dataset_list_files(co_context *ctx, const char *const *patterns,
                                         size_t num_patterns, const co_list_files_options *options);

/* Writing record files. */

/** A file that records are appended to: a handle of its block, for one thread at a time. */
typedef struct co_record_writer co_record_writer;

/**
 * Make the file, or empty the existing one. The writer is closed when its block ends, but then a
 * failure (a full disk) only appears in the log: call co_record_writer_close.
 *
 * Scope:    this process. Processes that write the same file overwrite each other.
 * Context:  any.
 * Blocks:   while the file is made.
 * Returns:  a writer of ctx's block, or NULL with CO_NOT_FOUND for a folder that does not exist,
 *           CO_PERMISSION_DENIED, or CO_UNIMPLEMENTED for a compression without zlib.
 */
CO_API co_record_writer *co_record_writer_open(co_context *ctx, const char *path,
                                               const co_file_options *options);
/**
 * Append one record.
 *
 * Scope:    this process.
 * Context:  any.
 * Blocks:   while the system writes the bytes that do not fit into the writer's buffer.
 * Returns:  CO_OK, CO_FAILED_PRECONDITION for a closed writer, or the error of the system.
 */
CO_API co_code co_record_write(co_context *ctx, co_record_writer *writer, const void *bytes,
                               size_t nbytes);
/** co_record_write of every string of a tensor or host string; CO_TYPE_ERROR for anything else. */
CO_API co_code co_record_write_value(co_context *ctx, co_record_writer *writer, co_value *strings);
/** Pass all records so far to the system; for a compressed file, those already compressed. Waits
 * and returns like co_record_write. */
CO_API co_code co_record_writer_flush(co_context *ctx, co_record_writer *writer);
/** Write what is left and close; later writes are CO_FAILED_PRECONDITION. Closing twice is allowed.
 * Waits and returns like co_record_write. */
CO_API co_code co_record_writer_close(co_context *ctx, co_record_writer *writer);

/** CRC-32C of bytes, and as record files store it: rotated right by 15 bits, plus a constant. */
CO_API uint32_t co_crc32c(const void *bytes, size_t nbytes);
CO_API uint32_t co_crc32c_masked(const void *bytes, size_t nbytes);

/*
 * tf.Example: named lists of int64, float32 or byte strings, in the wire format of protocol
 * buffers. Bytes that are no Example are CO_INVALID_ARGUMENT, never a crash, whatever they hold.
 */

typedef enum co_feature_kind {
    CO_FEATURE_FIXED,   /* exactly the elements of its shape (FixedLenFeature) */
    CO_FEATURE_SEQUENCE /* any number of items of its shape (FixedLenSequenceFeature) */
} co_feature_kind;

/** What to take out of an example. Pointers are borrowed for the call. */
typedef struct co_feature {
    const char     *name;
    co_feature_kind kind;
    co_dtype        dtype; /* CO_INT64, CO_FLOAT32 or CO_STRING */
    const int64_t  *dims;  /* of the tensor, or of one item of a sequence */
    int             ndim;
    /*
     * A tensor of dtype in host memory, or NULL.
     * FIXED: the value of a feature that is not there, of its shape; NULL: that is an error.
     * SEQUENCE: one element, which fills up sequences that are shorter than the longest of the
     * batch, or not there; NULL: 0 or the empty string. (default_value of FixedLenSequenceFeature)
     */
    co_value       *missing;
} co_feature;

/**
 * The features of one serialized Example (a host string or scalar) or of several (a tensor of rank
 * 1), as a dict. Of several, tensors have a dimension 0 more, and sequences are filled up to the
 * longest (see co_feature.missing). A sequence that is not there is empty.
 *
 * Returns:  a dict, or NULL with CO_INVALID_ARGUMENT: bytes that are no Example, a feature that is
 *           missing, of another dtype, or of another number of elements (naming it and both
 *           numbers); or for features that are not described right, or twice. CO_TYPE_ERROR if
 *           `serialized` is no string.
 */
CO_API co_value *co_parse_example(co_context *ctx, co_value *serialized, const co_feature *features,
                                  size_t num_features);
/** All features of one serialized Example: a dict of tensors of rank 1; none for one without a
 * list. */
CO_API co_value *co_example_decode(co_context *ctx, co_value *serialized);
/**
 * A dict of what converts to tensors as a serialized Example, a host string. Integers and bools
 * become int64, floating numbers float32. Shapes are not kept. CO_TYPE_ERROR if `features` is no
 * dict.
 */
CO_API co_value *co_example_encode(co_context *ctx, co_value *features);

/*
 * Arrays of NumPy. CO_VALUE_ERROR for a file that cannot be understood or holds a dtype that
 * tensors do not have, CO_NOT_FOUND for one that is not there. Arrays are on the current device, in
 * C order.
 */

typedef struct co_array_options {
    size_t struct_size;
    /* a tensor over the file, not a copy: reading it after the file shrank ends the process
     * (SIGBUS) */
    bool   map;
} co_array_options;
#define CO_ARRAY_OPTIONS_INIT { sizeof(co_array_options), false }

/**
 * The array of an .npy file. `map` has no effect on arrays in Fortran order or of the other byte
 * order. NULL options mean the initialiser.
 *
 * Scope:    this process.
 * Context:  any.
 * Blocks:   while the file is read.
 * Returns:  a tensor, or NULL with CO_NOT_FOUND, CO_PERMISSION_DENIED or CO_VALUE_ERROR.
 */
CO_API co_value *co_load_npy(co_context *ctx, const char *path, const co_array_options *options);
/**
 * The arrays of an .npz file by name. They are never mapped; deflated ones need zlib.
 *
 * Scope:    this process.
 * Context:  any.
 * Blocks:   while the file is read.
 * Returns:  a dict of tensors, or NULL as co_load_npy, and with CO_UNIMPLEMENTED without zlib.
 */
CO_API co_value *co_load_npz(co_context *ctx, const char *path);

CO_EXTERN_C_END

#endif
