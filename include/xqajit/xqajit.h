/* xqajit: decode-attention kernels compiled at run time. C interface.
 *
 * Rules that hold for every function:
 *  - Returns an xqajit_status; XQAJIT_OK is 0. xqajit_last_error() then gives the text of this thread's last failure: it
 *    names the field, the value and the accepted range. No exception and no abort crosses this interface.
 *  - A handle may be used by any number of threads at once. Destroy it when no call is in flight.
 *  - A struct's first member is struct_size: set it to sizeof(the struct) and the rest to zero (XQAJIT_*_INIT does both).
 *    Zero means "default" or "off" for every field unless its comment says "required".
 *  - Strides are in elements, lengths in tokens, sizes in bytes, scores in natural-log units. Device pointers are void const*
 *    of the context that the stream belongs to.
 *  - Text handed out by a function (char**) is freed with xqajit_free().
 */
#ifndef XQAJIT_H
#define XQAJIT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define XQAJIT_API __attribute__((visibility("default")))
#else
#define XQAJIT_API
#endif

#define XQAJIT_VERSION_MAJOR 0
#define XQAJIT_VERSION_MINOR 1
#define XQAJIT_VERSION_PATCH 0

/* A zeroed struct that knows its size: xqajit_params p = XQAJIT_PARAMS_INIT; without a warning about the other fields. In C it is
 * an initialiser alone; to assign, write p = (xqajit_params)XQAJIT_PARAMS_INIT. In C++ it is an expression, and p = ... works too. */
#ifdef __cplusplus
extern "C++" { /* a template, wherever the header is included: inside extern "C" as well */
template <class T> inline T xqajit_init() {
    T value = T();
    value.struct_size = sizeof(T);
    return value;
}
}
#define XQAJIT_INIT(type) xqajit_init<type>()
#else
/* clang-format off */
#define XQAJIT_INIT(type) {.struct_size = sizeof(type)}
/* clang-format on */
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The driver API's stream handle, so that this header needs no CUDA header. NULL is the default stream. */
typedef struct CUstream_st* xqajit_stream;

typedef struct xqajit_service xqajit_service; /* opaque */

typedef enum xqajit_status {
    XQAJIT_OK = 0,
    XQAJIT_INVALID_ARGUMENT = 1, /* a field is out of its range; nothing was done */
    XQAJIT_UNSUPPORTED = 2,      /* legal, but no kernel family admits it; the text names the rule */
    XQAJIT_NOT_PREPARED = 3,   /* the shape is not loaded: run() that may not wait for it, or xqajit_prepare_wait() at its limit */
    XQAJIT_COMPILE_FAILED = 4, /* NVRTC refused, crashed or ran out of time; the text has its first error line */
    XQAJIT_CACHE_CORRUPT = 5,  /* a cache entry failed its checks (verify, show); launches recompile instead */
    XQAJIT_DRIVER_ERROR = 6,   /* the driver's error name and text */
    XQAJIT_UNAVAILABLE = 7,    /* a library, a device or a directory that the call needs is missing; the text says which */
    XQAJIT_OUT_OF_MEMORY = 8,
    XQAJIT_INTERNAL = 9,
    XQAJIT_INTERRUPTED = 10 /* prewarm was asked to stop before all was done, or the service was destroyed meanwhile */
} xqajit_status;

typedef enum xqajit_dtype {
    XQAJIT_DTYPE_DEFAULT = 0, /* kv_dtype, out_dtype: as q_dtype */
    XQAJIT_DTYPE_FP16 = 1,
    XQAJIT_DTYPE_BF16 = 2,
    XQAJIT_DTYPE_FP8_E4M3 = 3,
    XQAJIT_DTYPE_INT8 = 4,
    XQAJIT_DTYPE_NVFP4 = 5 /* refused by rule */
} xqajit_dtype;

typedef enum xqajit_spec_dec { XQAJIT_SPEC_DEC_NONE = 0, XQAJIT_SPEC_DEC_LINEAR = 1, XQAJIT_SPEC_DEC_TREE = 2 } xqajit_spec_dec;

/* How 8-bit KV enters the arithmetic. */
typedef enum xqajit_numeric {
    XQAJIT_NUMERIC_DEFAULT = 0, /* exact16 */
    XQAJIT_NUMERIC_EXACT16 = 1, /* converted to 16 bit or wider: the error of 16-bit math */
    XQAJIT_NUMERIC_FP8 = 2      /* Q and P rounded to e4m3 as well */
} xqajit_numeric;

/* What an input_kv launch rotates: elements (x, y) of a head of q and of the new K become (x cos - y sin, y cos + x sin). Elements from
 * rotary_dim on stay as they are. */
typedef enum xqajit_rope_style {
    XQAJIT_ROPE_NONE = 0, /* nothing: q and the new K are given as they are to be used */
    XQAJIT_ROPE_NEOX = 1, /* pairs (i, i + rotary_dim / 2) */
    XQAJIT_ROPE_GPTJ = 2  /* pairs (2i, 2i + 1) */
} xqajit_rope_style;

/* Applied by the caller before the call, except with input_kv. The last two are refused by rule. */
typedef enum xqajit_position {
    XQAJIT_POSITION_DEFAULT = 0, /* RoPE kinds, already applied */
    XQAJIT_POSITION_LEARNED_ABSOLUTE = 1,
    XQAJIT_POSITION_YARN = 2,
    XQAJIT_POSITION_ALIBI = 3,
    XQAJIT_POSITION_RELATIVE = 4
} xqajit_position;

/* How the KV of a request is divided over thread blocks. All three reduce in a fixed order. */
typedef enum xqajit_division {
    XQAJIT_DIVISION_DEFAULT = 0,  /* static where nb_sub_seq is set, else balanced */
    XQAJIT_DIVISION_STATIC = 1,   /* one number of sub-sequences, from batch and max_len */
    XQAJIT_DIVISION_BALANCED = 2, /* parts in proportion to the lengths, worked out on the device */
    XQAJIT_DIVISION_INVARIANT = 3 /* fixed token edges: a request's bits depend on neither its neighbours nor max_len */
} xqajit_division;

/* What a launch does whose kernel is not loaded. While its stream is capturing it is refused, whatever this says. */
typedef enum xqajit_on_miss {
    XQAJIT_ON_MISS_DEFAULT = 0, /* compile */
    XQAJIT_ON_MISS_COMPILE = 1, /* waits: loads or compiles it, or joins who does so now */
    XQAJIT_ON_MISS_FALLBACK =
        2, /* begins to prepare it in the background, and runs mmha meanwhile if that is loaded and serves the shape, */
           /*   else NOT_PREPARED. Changes bits: refused by rule under invariant division */
    XQAJIT_ON_MISS_REFUSE = 3 /* NOT_PREPARED */
} xqajit_on_miss;

/* clang-format off */
/* One attention layer's shape and features. Thread-safe to share; never holds device pointers. */
typedef struct xqajit_params {
    uint32_t struct_size;
    /* Part of the kernel's key. */
    int32_t q_dtype;        /* required: FP16 or BF16 */
    int32_t kv_dtype;       /* xqajit_dtype; FP16 and BF16 must equal q_dtype */
    int32_t out_dtype;      /* xqajit_dtype: q_dtype or FP8_E4M3 */
    int32_t numeric;        /* xqajit_numeric */
    uint32_t num_q_heads;   /* required: a multiple of num_kv_heads, at most 128 times it */
    uint32_t num_kv_heads;  /* required: 1 .. 4096 */
    uint32_t head_dim;      /* required: 16 .. 256 in steps of 16; with mla: 576 */
    uint32_t head_dim_v;    /* 0: head_dim; with mla: 512 */
    uint32_t page_size;     /* tokens a page: 0 (contiguous), 8, 16, 32, 64, 128, 256, 512 or 1024 */
    uint32_t beam_width;    /* 0: 1; 1 .. 8 */
    int32_t spec_dec;       /* xqajit_spec_dec */
    uint32_t q_len;         /* 0: 1; longest draft of a launch, 1 .. 64; more than 1 needs spec_dec */
    int32_t mla;            /* 1: V is the first head_dim_v elements of the K row */
    int32_t sinks;          /* 1: args.sinks is read */
    int32_t lse;            /* 1: args.lse is written */
    int32_t input_kv;       /* 1: the launch stores each request's new K and V itself, from args.qkv: plain decode alone */
    int32_t rope_style;     /* xqajit_rope_style: what it rotates before; needs input_kv */
    uint32_t rotary_dim;    /* elements of a head that are rotated: a multiple of 16 up to head_dim; 0: head_dim */
    int32_t skip_softmax;   /* 1: tiles far below the running maximum are skipped: an approximation, which skip_softmax_threshold bounds */
    /* Values: only whether they are zero is part of the key. */
    uint32_t sliding_window;            /* newest tokens visible, the current one included; 0: all */
    float softcap;                      /* scores become cap * tanh(score / cap); 0: off */
    float qk_scale;                     /* 0: 1 / sqrt(head_dim); required with mla */
    /* A tile of 64 tokens is skipped where, for each query row of its KV head, its largest weight is below threshold / length times the
     * largest that its thread block has seen before. Nothing is with 0, or in requests of up to `threshold` tokens. Of a row's
     * denominator at most threshold / (1 + threshold) is left out; kernel_src/gmma/README.md derives the error of out and lse. */
    float skip_softmax_threshold;
    /* Run-time policy; not part of the compiled kernel's key. */
    int32_t division;       /* xqajit_division; refused by rule where no family has it */
    uint32_t nb_sub_seq;    /* 0: chosen; sub-sequences of each request, 1 .. 6000: static division alone, which it makes the default */
    int32_t pdl;            /* 1: programmatic dependent launch where the arch has it */
    /* What no kernel here computes: anything but zero is refused, each by a rule of its own. */
    int32_t non_causal;
    int32_t cross_attention;
    int32_t position_shift;
    uint32_t sink_tokens;
    uint32_t chunked_attention;
    int32_t position;       /* xqajit_position */
    int32_t on_miss;        /* xqajit_on_miss: run-time policy too. With fallback, prewarm and workspace_size count mmha's kernel in */
} xqajit_params;

#define XQAJIT_PARAMS_INIT XQAJIT_INIT(xqajit_params)

/* One launch. Pointers are device pointers unless the comment says "host value". rows: the query rows of all requests, in
 * request order; batch * q_len of them, or cu_q_len[batch]. */
typedef struct xqajit_run_args {
    uint32_t struct_size;
    uint32_t batch;                 /* requests, 0 .. 65536; 0: pointers may be null and nothing is launched; what is refused is refused as for any batch */
    uint32_t q_len;                 /* 0: 1; query rows of each request, or of the longest with cu_q_len; <= params.q_len */
    uint32_t max_pages;             /* entries of a page-table row */
    uint64_t max_len;               /* upper bound of seq_lens: sizes grid and workspace only; 0: what the pages or capacity hold */
    uint64_t capacity;              /* contiguous KV and beam: tokens a sequence can hold, at most 2^31 - 1 */
    const void* q;                  /* [rows, beam, num_q_heads, head_dim]; null with input_kv, whose qkv has it */
    void* out;                      /* [rows, beam, num_q_heads, head_dim_v] */
    float* lse;                     /* [rows, beam, num_q_heads], natural log; null unless params.lse */
    int64_t q_stride_row;           /* between consecutive (row, beam); 0: packed. 0 with input_kv, like the next one */
    int64_t q_stride_head;          /* 0: packed */
    int64_t out_stride_row;         /* between consecutive (row, beam); 0: packed */
    int64_t out_stride_head;        /* 0: packed */
    const void* k;                  /* pool; element (page, token, head) starts at page*stride_page + token*stride_token + head*stride_head */
    const void* v;                  /* likewise; null with mla */
    int64_t k_stride_page;          /* contiguous KV: between sequences. gmma's kernels take strides of K and V below 2^40 bytes alone */
    int64_t k_stride_token;
    int64_t k_stride_head;
    int64_t v_stride_page;
    int64_t v_stride_token;
    int64_t v_stride_head;
    const int32_t* page_table;      /* [batch * beam, max_pages]; null for contiguous KV */
    const int32_t* v_page_table;    /* V's own table, same shape and stride; null: page_table serves both */
    int64_t page_table_stride;      /* 0: max_pages */
    const int32_t* seq_lens;        /* [batch]: tokens visible, the new ones included */
    const int32_t* cu_q_len;        /* [batch + 1] for ragged drafts, or null */
    const uint32_t* packed_mask;    /* [rows, mask_stride_row]: tree only */
    int64_t mask_stride_row;        /* words; 0: ceil(q_len / 32) */
    const float* sinks;             /* [num_q_heads] */
    const int32_t* cache_indirection; /* [batch, beam, capacity]: beam > 1 only */
    const int32_t* ctx_lens;        /* [batch]: beam > 1 only */
    float k_scale;                  /* host value; 0: 1. 8-bit KV only */
    float v_scale;                  /* host value; 0: 1. 8-bit KV only */
    float out_scale_rcp;            /* host value; 0: 1. fp8 output only */
    uint32_t reserved0;             /* zero */
    const float* k_scale_ptr;       /* one float; wins over the host value */
    const float* v_scale_ptr;
    const float* out_scale_rcp_ptr;
    void* workspace;                /* 256-byte aligned, initialised; null only if the launch needs none */
    uint64_t workspace_size;        /* as given to xqajit_workspace_init */
    uint64_t* skipped_tiles;        /* [2]: skip_softmax only; null: not counted. The launch adds, over requests and KV heads, the tiles of
                                     * 64 tokens that it skipped to the first and all that it looked at to the second */
    /* input_kv alone, and null or 0 without it. A request's new token is token seq_lens[b] - 1: its K and V go to that slot of k and v,
     * which the launch writes, and are attended as they are stored. 8-bit KV: x * (1 / k_scale), x * (1 / v_scale), rounded to nearest
     * even, saturated. A request with seq_lens[b] 0 stores nothing. No other request's visible tokens may lie in that slot. */
    const void* qkv;                /* [rows, num_q_heads + 2 * num_kv_heads, head_dim] of q_dtype: the heads of Q, then of K, then of V; 16-byte aligned */
    int64_t qkv_stride_row;         /* 0: packed */
    int64_t qkv_stride_head;        /* 0: packed */
    const float* cos_sin;           /* [max_pos, rotary_dim / 2, 2], packed: cosine and sine of each pair at position seq_lens[b] - 1; 16-byte aligned; null without rope_style */
    uint64_t max_pos;               /* positions that cos_sin has: max_len .. 2^31 - 1; 0 without rope_style */
} xqajit_run_args;

#define XQAJIT_RUN_ARGS_INIT XQAJIT_INIT(xqajit_run_args)

typedef struct xqajit_stats {
    uint32_t struct_size;
    uint32_t reserved0;
    uint64_t memory_hits;   /* prepare or run found the kernel loaded */
    uint64_t disk_hits;     /* of the cache directory and of the layers below it; a remote cache's are in xqajit_metrics() */
    uint64_t compiles;
    uint64_t compile_failures;
    uint64_t quarantined;   /* entries set aside as corrupt */
    uint64_t launches;
    double compile_seconds;
    uint64_t lock_waits;    /* prepare, run or prewarm waited for another process to compile a kernel */
    uint64_t misses;        /* kernels that no layer had when they were first looked for */
} xqajit_stats;

#define XQAJIT_STATS_INIT XQAJIT_INIT(xqajit_stats)

/* Whose counters xqajit_metrics() gives, and as what. */
typedef enum xqajit_metrics_scope {
    XQAJIT_METRICS_SERVICE = 0, /* this service's */
    XQAJIT_METRICS_CACHE = 1    /* and those of all services that wrote to its cache directory and were destroyed since */
} xqajit_metrics_scope;
typedef enum xqajit_metrics_format {
    XQAJIT_METRICS_JSON = 0,
    XQAJIT_METRICS_PROMETHEUS = 1 /* the text exposition format, version 0.0.4 */
} xqajit_metrics_format;

/* level: 0 trace, 1 debug, 2 info, 3 warning, 4 error. text is valid during the call only. Several threads may call it at once. It
 * must not throw, and must not call the library. */
typedef void (*xqajit_log_fn)(void* user, int level, const char* text);
/* done of total kernels; text describes the one just finished. Called from one thread at a time. It must not
 * throw: one that does is not called again, every kernel is still compiled, and prewarm returns XQAJIT_INVALID_ARGUMENT. */
typedef void (*xqajit_progress_fn)(void* user, uint32_t done, uint32_t total, const char* text);

/* Once, before the first compile, if there is any: how many kernels are to be compiled, by how many worker processes, and why so many
 * ("16 cores, 900 MiB of memory for 256 MiB each"). It must not throw: one that does counts as a progress function that does. */
typedef void (*xqajit_start_fn)(void* user, uint32_t kernels, uint32_t workers, const char* reason);

typedef struct xqajit_prewarm_options {
    uint32_t struct_size;
    uint32_t jobs;                  /* worker processes; 0: as many as cores and memory (the control group's too) allow */
    const char* archs;              /* comma-separated, as "sm_90a,sm_80"; null: XQAJIT_ARCH, else the present GPUs */
    xqajit_progress_fn progress;    /* may be null */
    void* user;
    uint32_t shard;                 /* 0 .. shards - 1: only the kernels of this share of the list. A kernel's key decides, so that shards */
    uint32_t shards;                /*   share no kernel and together are the list, on any machine and in any order. 0: no shards */
    const int* stop;                /* may be null; read atomically. Once it is not 0 no compile is started, the workers that run are killed, */
                                    /*   and prewarm returns XQAJIT_INTERRUPTED. What was compiled is kept: the next call goes on from there */
    xqajit_start_fn start;          /* may be null; called with user */
} xqajit_prewarm_options;

#define XQAJIT_PREWARM_OPTIONS_INIT XQAJIT_INIT(xqajit_prewarm_options)

typedef struct xqajit_gc_options {
    uint32_t struct_size;
    uint32_t dry_run;         /* 1: nothing is removed, and the document says what would be */
    uint64_t max_bytes;       /* of all entries together; 0: no limit */
    uint64_t max_age_seconds; /* since an entry's last use; 0: no limit */
} xqajit_gc_options;
#define XQAJIT_GC_OPTIONS_INIT XQAJIT_INIT(xqajit_gc_options)

typedef struct xqajit_import_options {
    uint32_t struct_size;
    uint32_t allow_unsigned;  /* 1: entries without a signature, and where XQAJIT_CACHE_KEY_FILE is unset any, are taken as they are */
} xqajit_import_options;
#define XQAJIT_IMPORT_OPTIONS_INIT XQAJIT_INIT(xqajit_import_options)

/* clang-format on */

/* "0.1.0" */
XQAJIT_API char const* xqajit_version(void);
XQAJIT_API char const* xqajit_status_name(xqajit_status status);
/* Text of this thread's last failure, "" if none. Valid until this thread's next call. */
XQAJIT_API char const* xqajit_last_error(void);
XQAJIT_API void xqajit_free(char* text);

/* Replaces the log's sink for the whole process; null restores standard error. Not to be called while other calls run. */
XQAJIT_API void xqajit_set_log(xqajit_log_fn log, void* user);

/* Reads the settings from the environment. cache_dir: null or "" takes XQAJIT_CACHE_DIR and its defaults. Loads no CUDA library. */
XQAJIT_API xqajit_status xqajit_create(char const* cache_dir, xqajit_service** service);
/* Ends background prepares and unloads the modules: launches must have finished before, and a graph captured from them must not be replayed after. Null: nothing. */
XQAJIT_API void xqajit_destroy(xqajit_service* service);

/* Finds or compiles the kernel and loads it into the calling thread's current context. Blocks; idempotent. A division (or a number of
 * sub-sequences where there was none) may call for another kernel: prepare the shape with each that will be launched. */
XQAJIT_API xqajit_status xqajit_prepare(xqajit_service* service, xqajit_params const* params);
/* Begins the same in threads of the service's own and returns at once: OK means begun, under way or loaded already. What is known without
 * a compile (a bad shape, a rule, no context) is returned as by xqajit_prepare; a later failure is a warning, and xqajit_prepare_wait tells
 * it. With on_miss fallback mmha's kernel is made ready too, first, unless the shape's own is in the cache. The current context must live
 * until the shape is loaded or the service destroyed, which ends what is under way: what is queued is dropped, a worker is killed, and a
 * compile in this process (XQAJIT_COMPILE) is waited for, as NVRTC cannot be stopped. */
XQAJIT_API xqajit_status xqajit_prepare_async(xqajit_service* service, xqajit_params const* params);
/* Waits until the shape is loaded into the calling thread's current context: OK, or why its background prepare failed. NOT_PREPARED after
 * timeout_ms milliseconds (0: only looks), or at once where nothing prepares it in the background. */
XQAJIT_API xqajit_status xqajit_prepare_wait(xqajit_service* service, xqajit_params const* params, uint32_t timeout_ms);
/* Exact bytes that any launch of this shape with batch <= max_batch and max_len <= max_len can need on the current context's
 * device. 0 where no launch needs one. max_batch 0 .. 65536, max_len 0 .. 2^31 - 1. */
XQAJIT_API xqajit_status xqajit_workspace_size(xqajit_service* service, xqajit_params const* params, uint32_t max_batch,
                                               uint64_t max_len, uint64_t* bytes);
/* Zeroes the counters on the stream and remembers (context, workspace, bytes). Once per workspace, and again after a foreign
 * write or a killed launch. One workspace serves one stream at a time. */
XQAJIT_API xqajit_status xqajit_workspace_init(xqajit_service* service, void* workspace, uint64_t bytes, xqajit_stream stream);
/* Forgets it: call before the memory is freed. */
XQAJIT_API xqajit_status xqajit_workspace_release(xqajit_service* service, void* workspace);
/* Launches on the stream (its context is made current for the call). A prepared run allocates, compiles and synchronises
 * nothing. While the stream is capturing, an unprepared shape is refused (NOT_PREPARED) and the capture stays valid. */
XQAJIT_API xqajit_status xqajit_run(xqajit_service* service, xqajit_params const* params, xqajit_run_args const* args,
                                    xqajit_stream stream);

/* OK if some family admits the shape on arch ("sm_90a"; null: XQAJIT_ARCH, else the current context's, else GPU 0's), UNSUPPORTED with
 * the rules otherwise. Needs no GPU when arch is given. */
XQAJIT_API xqajit_status xqajit_supports(xqajit_service* service, xqajit_params const* params, char const* arch);

/* Documents in JSON, each with a "schema" member. Bytes that are no UTF-8 (of a path, a setting, a compiler's log) are U+FFFD there.
 * None needs a GPU when arch is given. */
XQAJIT_API xqajit_status xqajit_capabilities(xqajit_service* service, char const* arch, char** json);
/* batch 0 .. 65536, seq_len 0 .. 2^31 - 1. OK for a refused shape or launch too: what prepare or run would answer is then in the
 * document, as error {"status", "message"} where no family admits the shape, as launch.error where the launch itself is refused. */
XQAJIT_API xqajit_status xqajit_explain(xqajit_service* service, xqajit_params const* params, char const* arch, uint32_t batch,
                                        uint64_t seq_len, char** json);
/* shapes: the text of a shape list. report may be null. If any kernel failed: COMPILE_FAILED, or UNAVAILABLE where there is no
 * compiler; the report names it. A worker that is killed or runs out of memory fails its kernel alone, which is then tried once
 * more when no other worker runs. */
XQAJIT_API xqajit_status xqajit_prewarm(xqajit_service* service, char const* shapes, xqajit_prewarm_options const* options,
                                        char** report);
/* The distinct shapes of a list: {"entries": [{"name", "params": {...}}]}. */
XQAJIT_API xqajit_status xqajit_parse_shapes(xqajit_service* service, char const* shapes, char** json);
/* A shape from one JSON object with the shape list's keys, scalars only. */
XQAJIT_API xqajit_status xqajit_params_from_json(char const* json, xqajit_params* params);
XQAJIT_API xqajit_status xqajit_cache_list(xqajit_service* service, char** json);
XQAJIT_API xqajit_status xqajit_cache_show(xqajit_service* service, char const* key_prefix, char** json);
/* Checks every entry and folder; the document names each that failed. CACHE_CORRUPT if one is damaged, is something else or is writable by
 * others; UNAVAILABLE if all that failed cannot be read (permissions, an I/O error). A missing directory is an empty cache. */
XQAJIT_API xqajit_status xqajit_cache_verify(xqajit_service* service, char** json);
/* Removes entries until both limits hold, of which at least one is given, the least recently used first; and temporary and quarantined files
 * that are more than an hour old. Other processes may read and write meanwhile. UNAVAILABLE, with the document, if something could not be
 * read or removed, which it names; without one where the directory cannot be written. A missing directory is an empty cache. */
XQAJIT_API xqajit_status xqajit_cache_gc(xqajit_service* service, xqajit_gc_options const* options, char** json);
/* Writes every good entry of the cache directory into one file, a bundle, signed where XQAJIT_CACHE_KEY_FILE is set. `file` is replaced
 * whole, or left as it was. CACHE_CORRUPT, with the document and the file: entries were left out, which the document names. */
XQAJIT_API xqajit_status xqajit_cache_export(xqajit_service* service, char const* file, char** json);
/* Takes all entries of a bundle into the cache directory, or none. An entry that is there already stays. CACHE_CORRUPT: the bundle is
 * damaged, of another version, not signed, or signed under another key than XQAJIT_CACHE_KEY_FILE's; INVALID_ARGUMENT: it cannot be
 * opened; UNAVAILABLE: the directory cannot be written, or this build lacks the zstd or the signatures that the bundle asks for. options: null for the defaults. */
XQAJIT_API xqajit_status xqajit_cache_import(xqajit_service* service, char const* file, xqajit_import_options const* options,
                                             char** json);
/* Lists a bundle from its head: no image is unpacked, no signature checked, no cache directory needed. */
XQAJIT_API xqajit_status xqajit_cache_show_bundle(xqajit_service* service, char const* file, char** json);
/* Why a kernel would be compiled: the fields of its key beside those of the entries that are nearest to it. params: the shape; null: key_prefix
 * is that of an entry, asked for with the present compiler. key_prefix: only the kernels whose key starts so; null or "": all of the shape.
 * arch: as of xqajit_explain. INVALID_ARGUMENT where both are null, or no kernel and no entry has the key. Compiles nothing, moves no entry. */
XQAJIT_API xqajit_status xqajit_cache_explain_miss(xqajit_service* service, char const* key_prefix, xqajit_params const* params,
                                                   char const* arch, char** json);
/* The cache directory, the layers below it and the remote cache, each with its state; and that of the whole machine. Both ask the remote's server
 * whether it answers, for as long as XQAJIT_REMOTE_TIMEOUT says. */
XQAJIT_API xqajit_status xqajit_cache_path(xqajit_service* service, char** json);
XQAJIT_API xqajit_status xqajit_doctor(xqajit_service* service, char** json);
XQAJIT_API xqajit_status xqajit_get_stats(xqajit_service* service, xqajit_stats* stats);
/* Counters (hits by layer, misses, compiles, bytes, entries set aside, lock waits, launches) and a histogram of seconds by phase; freed with
 * xqajit_free(). scope: xqajit_metrics_scope; format: xqajit_metrics_format. Takes no lock that a launch takes. A service adds its counters to
 * the cache directory's when it is destroyed, where the directory can be written. CACHE_CORRUPT: the directory's cannot be read; UNAVAILABLE:
 * the directory is not usable. */
XQAJIT_API xqajit_status xqajit_metrics(xqajit_service* service, int32_t scope, int32_t format, char** text);

#ifdef __cplusplus
}
#endif
#endif
