/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of named tensors, without a context: what the formats have in common. A format lists its
 * entries and says where the bytes of each are; reading them, in parts by several threads and with
 * their checksum, is the same for all.
 *
 *   tensor_file.c        finding the format, the list, reading bytes
 *   safetensors.c        a header of JSON; safetensors_write.c writes it
 *   tensor_bundle.c      TensorFlow's checkpoints: an index (sstable.c) and files of data
 *   npz_file.c           archives of arrays
 *   tensor_file_calls.c  the public calls
 */
#ifndef COI_IO_TENSOR_FILE_H
#define COI_IO_TENSOR_FILE_H

#include <cohort/tensor_files.h>

#include "base/memory.h"
#include "base/threads.h"
#include "context/context.h"

#define COI_SAFETENSORS_MAX_HEADER 100000000u /* bytes, as the Python package has it */

typedef struct coi_tensor_file coi_tensor_file;

/* How the elements of an entry lie in the file. */
typedef enum coi_stored {
    COI_STORED_PLAIN,       /* as a tensor has them */
    COI_STORED_BOOL,        /* bytes, of which those that are not 0 are true */
    COI_STORED_FLOAT8_E4M3, /* 1 sign, 4 exponent, 3 fraction; without infinities */
    COI_STORED_FLOAT8_E5M2,
    COI_STORED_STRINGS, /* as tensor bundles have them */
    COI_STORED_ARRAY,   /* an array in an archive: the format reads it */
    COI_STORED_UNKNOWN  /* no tensor can hold it */
} coi_stored;

/* A dtype of a format. */
typedef struct coi_stored_dtype {
    const char *stored_name; /* "F8_E5M2", "DT_HALF" */
    const char *name;        /* "float8_e5m2" */
    co_dtype    dtype;       /* of the tensor, or CO_DTYPE_NONE */
    coi_stored  stored;
    unsigned    bits; /* of an element; 0: strings, or not known */
} coi_stored_dtype;

typedef struct coi_tensor_entry {
    co_tensor_entry         info;
    const coi_stored_dtype *type;
    size_t                  order; /* where the file names it: of two of one name the last counts */
    size_t                  dims_at;   /* while reading the list: where its dims are */
    size_t                  slices_at; /* tensor bundles: the same */
    bool                    is_part;   /* of an entry that was saved in slices: it is not listed */
    const void             *member;    /* archives: what the format knows of it */
} coi_tensor_entry;

/* Bytes of a file. */
typedef struct coi_extent {
    int         fd;
    const char *path;
    uint64_t    offset, nbytes;
    uint64_t    file_nbytes; /* the size that the file had when it was opened */
} coi_extent;

typedef struct coi_tensor_format {
    const char *name;
    /* Fill in the entries. What was made before an error is given back by close. */
    co_code (*open)(coi_tensor_file *file, co_error_info *err);
    void (*close)(coi_tensor_file *file);
    /* Where the bytes of an entry are that is not COI_STORED_ARRAY and was not saved in slices. */
    co_code (*locate)(coi_tensor_file *file, const coi_tensor_entry *entry, coi_extent *out,
                      co_error_info *err);
    /* Archives: a new reference on the host. */
    co_value *(*read_array)(coi_tensor_file *file, co_context *ctx, const coi_tensor_entry *entry,
                            co_error_info *err);
    /* Tensor bundles: the entry that holds slice i of one that was saved in slices. */
    const coi_tensor_entry *(*part)(coi_tensor_file *file, const coi_tensor_entry *entry, size_t i,
                                    co_error_info *err);
} coi_tensor_format;

extern const coi_tensor_format coi_safetensors_format, coi_tensor_bundle_format, coi_npz_format;

typedef struct coi_metadata { /* a pair of safetensors' __metadata__ */
    const char *key, *value;
    size_t      key_nbytes, value_nbytes;
} coi_metadata;

struct coi_tensor_file {
    coi_memory              *memory;
    const coi_tensor_format *format;
    co_tensor_file_info      info;
    char                    *path; /* of a bundle: the prefix */
    size_t                   path_nbytes;
    int                      fd; /* of the file that has the list */
    uint64_t                 nbytes;
    coi_tensor_entry        *entries; /* info.num_entries of them are listed, parts follow */
    size_t                   num_entries, cap_entries;
    coi_tensor_entry       **by_name; /* those listed, sorted by name */
    int64_t                 *numbers; /* dims and slices of all */
    size_t                   num_numbers, cap_numbers;
    bool                     has_metadata;
    coi_metadata            *metadata; /* in the order of the file; keys are different */
    size_t                   num_metadata, cap_metadata;
    void                    *state; /* of the format */
};

/*
 * Open a file of any format; `*out` is closed by coi_tensor_file_close. CO_NOT_FOUND,
 * CO_PERMISSION_DENIED, CO_INVALID_ARGUMENT, CO_DATA_LOSS, CO_UNIMPLEMENTED, CO_RESOURCE_EXHAUSTED.
 */
co_code coi_tensor_file_open(coi_memory *memory, const char *path, coi_tensor_file **out,
                             co_error_info *err);
/* The same of one format, without looking at the content. */
co_code coi_tensor_file_open_as(coi_memory *memory, const char *path,
                                const coi_tensor_format *format, coi_tensor_file **out,
                                co_error_info *err);
/* NULL is allowed. */
void coi_tensor_file_close(coi_tensor_file *file);
/* The listed entry of that name; NULL if there is none. */
const coi_tensor_entry *coi_tensor_file_entry(const coi_tensor_file *file, const char *name,
                                              size_t name_nbytes);

/*
 * Read nbytes of an entry from byte `first` on, as they lie in the file, by several threads where
 * it is worth it (team NULL: by this one). *crc (may be NULL) gets their CRC-32C, of the same pass.
 * CO_DATA_LOSS if the file has shrunk. Thread-safe for one file, once it has been located.
 */
co_code coi_read_extent(const coi_extent *extent, uint64_t first, void *out, uint64_t nbytes,
                        coi_team *team, uint32_t *crc, co_error_info *err);
/* Bytes as they lie in the file into elements of a tensor; both may be the same memory, if an
 * element has the same size in both. */
void coi_decode_stored(coi_stored stored, const void *from, void *to, int64_t n);

/* For formats: room for one more entry, dims in file->numbers, and an error that begins with the
 * file's name. */
coi_tensor_entry *coi_tensor_file_add(coi_tensor_file *file, co_error_info *err);
bool    coi_tensor_file_add_number(coi_tensor_file *file, int64_t number, co_error_info *err);
co_code coi_tensor_file_damaged(const coi_tensor_file *file, co_error_info *err, const char *format,
                                ...) CO_PRINTF(3, 4);
co_code coi_tensor_file_no_memory(const coi_tensor_file *file, co_error_info *err);
/* Sort by name; of entries of one name the last counts. Then set the pointers to dims and slices,
 * and by_name. `compare` of entries (may be NULL) is the order in which they are listed. */
co_code coi_tensor_file_finish(coi_tensor_file *file, int (*compare)(const void *, const void *),
                               co_error_info   *err);
/* All of a regular file into memory that the caller frees, of at most `limit` bytes. */
co_code coi_read_file(coi_memory *memory, const char *path, uint64_t limit, char **bytes,
                      size_t *nbytes, co_error_info *err);
/* Open for reading, and the size; CO_INVALID_ARGUMENT for what is not a regular file. */
co_code coi_open_regular(const char *path, int *fd, uint64_t *nbytes, co_error_info *err);
/* n bytes at a place; CO_DATA_LOSS if they are not there. */
co_code coi_pread_exactly(int fd, const char *path, uint64_t offset, void *bytes, size_t n,
                          co_error_info *err);

/*
 * checkpoint_state.c: what TensorFlow's text file `checkpoint` says. Texts are in `bytes`.
 */
typedef struct coi_checkpoint_state {
    coi_memory  *memory;
    char        *bytes;
    size_t       nbytes;
    const char  *latest;
    const char **paths; /* oldest first */
    size_t       num_paths, cap_paths;
} coi_checkpoint_state;
co_code coi_checkpoint_state_read(coi_checkpoint_state *state, coi_memory *memory,
                                  const char *folder, co_error_info *err);
void    coi_checkpoint_state_free(coi_checkpoint_state *state);
/* folder/name, or the name alone if it begins with "/"; the caller frees strlen + 1 bytes. */
char *coi_join_path(coi_memory *memory, const char *folder, const char *name);

/* sstable.c: whether bytes at the end of a file are the foot of an index. */
#define COI_SSTABLE_FOOT 48
bool coi_is_sstable_foot(const unsigned char foot[COI_SSTABLE_FOOT]);
/* object_graph.c: the value that co_tensor_file_object_graph returns, of the bytes of the graph; a
 * value of ctx's block, or NULL with an error in ctx. */
co_value *coi_object_graph(co_context *ctx, const void *bytes, size_t nbytes);

/* --- writing --- */

/* A tensor to be written, as bytes of the host: with references to immutable tensors, a picture
 * that stays while steps go on, for any thread. */
typedef struct coi_tensor_source {
    const char    *name; /* UTF-8 for safetensors */
    size_t         name_nbytes;
    co_dtype       dtype; /* not CO_STRING */
    int            ndim;
    const int64_t *dims;
    const void    *data;
    uint64_t       nbytes;
    uint32_t       crc;    /* set by the writer: of the data, as it was written */
    uint64_t       offset; /* set by the writer: in the file */
} coi_tensor_source;

struct coi_file_writer;
/*
 * Write to a file that is open for writing (file_writer.h). The sources are sorted into the order
 * of the file. CO_INVALID_ARGUMENT for a name that cannot be written, or comes twice;
 * CO_TYPE_ERROR for strings.
 */
co_code coi_safetensors_write(struct coi_file_writer *writer, coi_tensor_source *sources, size_t n,
                              const coi_metadata *metadata, size_t num_metadata, bool has_metadata,
                              co_error_info *err);
co_code coi_npz_write(struct coi_file_writer *writer, coi_tensor_source *sources, size_t n,
                      co_error_info *err);

#endif
