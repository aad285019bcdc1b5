/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of named tensors: safetensors (read and written), .npz archives of NumPy (read and written)
 * and TensorFlow's checkpoints, which are called tensor bundles (read).
 *
 *     co_value *weights = co_dict(ctx, (const char *[]){ "w", "b" }, (co_value *[]){ w, b }, 2);
 *     co_save_safetensors(ctx, "model.safetensors", weights, NULL, NULL);
 *     ...
 *     co_tensor_file *file = co_tensor_file_open(ctx, "model.safetensors", NULL);
 *     co_value *w = co_tensor_file_read(ctx, file, "w");
 *
 * What a file is, its content says, not its name. Opening reads the list of tensors alone; each
 * tensor is read when it is asked for, large ones in parts by several threads. A damaged tensor
 * fails alone.
 *
 *   CO_NOT_FOUND          there is no such file, or no tensor of that name in it
 *   CO_PERMISSION_DENIED  it may not be read
 *   CO_DATA_LOSS          it is cut off or damaged, or shrank while it was read, or is of another
 *                         format; the message names file, tensor and offset
 *   CO_UNIMPLEMENTED      a dtype or a compression that the library does not have
 *
 * docs/decisions/tensor-files.md has the limits of each format, and what `map` guarantees.
 */
#ifndef COHORT_TENSOR_FILES_H
#define COHORT_TENSOR_FILES_H

#include <cohort/value.h>

CO_EXTERN_C_BEGIN

/** A file of tensors that is open for reading: a handle of its block, for one thread at a time. */
typedef struct co_tensor_file co_tensor_file;

/** Options of co_tensor_file_open. Start from the initialiser. */
typedef struct co_tensor_file_options {
    size_t struct_size;
    /*
     * Tensors over the file instead of copies: of a safetensors file, where that is safe and their
     * data is aligned; the others are copied, as without the option. It is safe where the kernel promises that the file
     * keeps its bytes: a sealed memfd, or a file of this user on a local file system that nobody
     * has open for writing. Who truncates or writes such a file meanwhile has to wait until the
     * library has made a copy (a lease of fcntl, see the decision).
     */
    bool   map;
} co_tensor_file_options;
#define CO_TENSOR_FILE_OPTIONS_INIT { sizeof(co_tensor_file_options), false }

/** What a file says of a tensor. Lives as long as the file is open. */
typedef struct co_tensor_entry {
    const char    *name;        /* ends with a zero byte, and may hold others */
    size_t         name_nbytes;
    /* of the tensor that reading gives: float8 is read as CO_FLOAT16, which holds all its values.
     * CO_DTYPE_NONE: no tensor can hold it, and reading it is CO_UNIMPLEMENTED */
    co_dtype       dtype;
    const char    *dtype_name;  /* as TensorFlow calls it: "float32", "float8_e5m2" */
    const char    *stored_name; /* as the file calls it: "F32", "<f4", "DT_FLOAT" */
    int            ndim;
    const int64_t *dims;
    uint64_t       nbytes;      /* in the file; of an array in an archive, without its head */
    uint64_t       offset;      /* in its file; of safetensors, from the end of the header on, and of
                                 * an array, of its compressed bytes where it is deflated */
    int            shard;       /* which file of several */
    bool           has_crc32c;
    uint32_t       crc32c;      /* masked, as the file has it */
    size_t         num_slices;  /* it was saved in so many parts; 0: as a whole. Then nbytes and
                                 * offset are 0 */
    /* begin and size of every part along every dimension: [num_slices][2][ndim]; size -1: all */
    const int64_t *slices;
} co_tensor_entry;

/** What a file says of itself. */
typedef struct co_tensor_file_info {
    const char *format; /* "safetensors", "npz", "tensor bundle" */
    size_t      num_entries;
    uint64_t    header_nbytes; /* safetensors: of the text before the data, padding included */
    int         num_shards;    /* files that hold data */
    int         producer;      /* tensor bundle: version of who wrote it */
} co_tensor_file_info;

/**
 * Open a file of tensors: a safetensors file, an .npz archive, the prefix of a tensor bundle (or
 * its file PREFIX.index), or a folder with TensorFlow's text file `checkpoint`, which names the
 * latest of its bundles. NULL options mean the initialiser.
 *
 * Scope:    this process.
 * Context:  any.
 * Blocks:   while the list of tensors is read.
 * Returns:  a file of ctx's block, or NULL with CO_NOT_FOUND, CO_PERMISSION_DENIED, CO_DATA_LOSS,
 *           CO_INVALID_ARGUMENT or CO_UNIMPLEMENTED.
 *
 * Rules: GEN-ERR-5.
 */
CO_API co_tensor_file *co_tensor_file_open(co_context *ctx, const char *path,
                                           const co_tensor_file_options *options);
/** Close it. Later reads are CO_FAILED_PRECONDITION; mapped tensors stay. Closing twice is
 * allowed. */
CO_API co_code         co_tensor_file_close(co_context *ctx, co_tensor_file *file);
/** Borrowed from the file; NULL with an error. */
CO_API const co_tensor_file_info *co_tensor_file_about(co_context *ctx, co_tensor_file *file);
/** Tensor i in the order of the file (a bundle: in the order of names), borrowed from the file;
 * NULL with CO_OUT_OF_RANGE. */
CO_API const co_tensor_entry *co_tensor_file_entry(co_context *ctx, co_tensor_file *file, size_t i);
/** The tensor of that name, borrowed from the file; NULL, and no error, where there is none. */
CO_API const co_tensor_entry *co_tensor_file_find(co_context *ctx, co_tensor_file *file,
                                                  const char *name);
/** The metadata of a safetensors file: a dict of strings, none where it has none, as the other
 * formats. */
CO_API co_value              *co_tensor_file_metadata(co_context *ctx, co_tensor_file *file);

/**
 * One tensor, on the current device. The checksum of a format that has one is verified.
 *
 * Scope:    this process.
 * Context:  any.
 * Blocks:   while it is read.
 * Returns:  a tensor, or NULL with CO_NOT_FOUND, CO_DATA_LOSS, CO_UNIMPLEMENTED, CO_OUT_OF_RANGE.
 */
CO_API co_value *co_tensor_file_read(co_context *ctx, co_tensor_file *file, const char *name);
/** co_tensor_file_read by number, which also finds names that hold zero bytes. Waits and returns
 * like it. */
CO_API co_value *co_tensor_file_read_entry(co_context *ctx, co_tensor_file *file, size_t i);
/**
 * A part of one tensor: size[d] elements from begin[d] on along every dimension; size -1 means all
 * that follow. Of safetensors, the rows that hold it alone are read; of formats with checksums, the
 * whole tensor or the parts that it was saved in.
 *
 * Scope:    this process.
 * Context:  any.
 * Blocks:   while it is read.
 * Returns:  as co_tensor_file_read, and CO_INVALID_ARGUMENT for a slice that is not inside the
 *           tensor.
 */
CO_API co_value *co_tensor_file_read_slice(co_context *ctx, co_tensor_file *file, const char *name,
                                           const int64_t *begin, const int64_t *size, int ndim);
/**
 * As TensorFlow's RestoreV2: one tensor that has to be of `dtype` (CO_DTYPE_NONE: any), or a slice
 * of it. shape_and_slice is empty for all of it, or the shape that the tensor has to have and a
 * begin and size along each dimension, or "-" for all: "4 3 1,2:-" is two rows of a [4, 3] tensor.
 *
 * Scope:    this process.
 * Context:  any.
 * Blocks:   while it is read.
 * Returns:  as co_tensor_file_read, and CO_INVALID_ARGUMENT for another dtype or shape, or a slice
 *           that is not inside the tensor or cannot be understood.
 */
CO_API co_value *co_tensor_file_restore(co_context *ctx, co_tensor_file *file, const char *name,
                                        co_dtype dtype, const char *shape_and_slice);
/** All tensors by name: a dict. Waits and returns like
 * co_tensor_file_read; CO_UNIMPLEMENTED if a name holds a zero byte, which no key can. */
CO_API co_value *co_tensor_file_read_all(co_context *ctx, co_tensor_file *file);

/**
 * The object graph that tf.train.Checkpoint saves with its variables, as a list of its nodes, the
 * root first. A node is a dict of those it has: "children", a dict of names to numbers of nodes;
 * "attributes", a list of dicts {name, full_name, checkpoint_key}; "slots", a list of dicts
 * {original_variable_node, slot_name, slot_variable_node}.
 *
 * Scope:    this process.
 * Context:  any.
 * Blocks:   while it is read.
 * Returns:  a list, or NULL with CO_NOT_FOUND for a file that was saved by name, or CO_DATA_LOSS.
 */
CO_API co_value *co_tensor_file_object_graph(co_context *ctx, co_tensor_file *file);
/**
 * What TensorFlow's text file `checkpoint` in a folder says: a dict of "model_checkpoint_path", the
 * latest checkpoint, and "all_model_checkpoint_paths", a list, oldest first. Paths are as the file
 * has them: relative ones are relative to the folder.
 *
 * Scope:    this process.
 * Context:  any.
 * Blocks:   while it is read.
 * Returns:  a dict, or NULL with CO_NOT_FOUND, CO_PERMISSION_DENIED or CO_DATA_LOSS.
 */
CO_API co_value *co_tf_checkpoint_state(co_context *ctx, const char *folder);

/** Options of writing. Start from the initialiser. */
typedef struct co_tensor_write_options {
    size_t struct_size;
    bool   replace; /* false: CO_ALREADY_EXISTS if there is such a file */
    bool   sync;    /* false: leave it to the system when the bytes reach the disk */
} co_tensor_write_options;
#define CO_TENSOR_WRITE_OPTIONS_INIT { sizeof(co_tensor_write_options), true, true }

/**
 * Write a dict of tensors (of what converts to tensors where ctx runs) as a safetensors file. The
 * file is the one that the Python package writes for the same tensors and metadata: sorted by
 * dtype, the largest elements first, then by name. `metadata` is a dict of strings, or NULL.
 *
 * The file is written under a temporary name in the same folder, synchronised, and renamed: an
 * older file of that name stays as it is until the new one is complete, whatever happens.
 *
 * Scope:    this process. Processes that write the same file overwrite each other's; the file is
 *           one of theirs.
 * Context:  any.
 * Blocks:   while it is written.
 * Returns:  CO_OK, or CO_TYPE_ERROR for what is no dict of tensors, or a tensor of strings;
 *           CO_INVALID_ARGUMENT for a name that is not UTF-8 or is "__metadata__";
 *           CO_ALREADY_EXISTS; CO_NOT_FOUND for a folder that does not exist; CO_PERMISSION_DENIED;
 *           CO_RESOURCE_EXHAUSTED for a full disk; or the error of the system.
 */
CO_API co_code co_save_safetensors(co_context *ctx, const char *path, co_value *tensors,
                                   co_value *metadata, const co_tensor_write_options *options);
/** All tensors of a safetensors file by name. Waits and returns like co_tensor_file_open and
 * co_tensor_file_read_all. */
CO_API co_value *co_load_safetensors(co_context *ctx, const char *path);
/**
 * Write a dict of tensors as an .npz archive, not compressed, as numpy.savez does; numpy.load and
 * co_load_npz read it. bfloat16 becomes float32, which holds all its values, because NumPy has no
 * name for it. Written like co_save_safetensors, and waits and returns like it.
 */
CO_API co_code co_save_npz(co_context *ctx, const char *path, co_value *tensors,
                           const co_tensor_write_options *options);

CO_EXTERN_C_END

#endif
