/* A pretend libnvidia-ml.so.1: the functions that a monitor calls, answering from a text file.
 *
 * The file is named by FAKENVML_STATE and is read again whenever its time stamp, size or inode changes, so
 * that a test can change the load, end a process or lose a device while a program runs. Without a file the
 * driver is "not loaded". tests/fakenvml/__init__.py writes it; a line is a keyword and its values:
 *
 *     driver VERSION
 *     epoch N                          handles given out under another epoch answer 999 until a new init
 *     now_ms N                         the clock that counters are sampled by (else the monotonic clock)
 *     error FUNCTION|* INDEX|* CODE    that call fails with CODE; "*" does not mean nvmlShutdown
 *     hang FUNCTION|* INDEX|* SECONDS  that call returns only after so long, or once the line is gone
 *     device UUID NAME...              begins a device; the lines below belong to it
 *     memory TOTAL USED RESERVED       bytes; version 1 of the call adds RESERVED to USED
 *     utilisation GPU MEMORY           per cent
 *     mig 0|1                          with 1, utilisation and counters are "not supported"
 *     gpm 0|1                          whether the device has counters
 *     metric ID VALUE                  a counter
 *     process PID BYTES|none           a process with a context
 *     sample PID STAMP_US PERCENT      a sample of a process's utilisation
 */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7,
       NO_DRIVER = 9, VERSION_MISMATCH = 25, UNKNOWN = 999 };
enum { MAX_DEVICES = 16, MAX_ROWS = 256, MAX_RULES = 64 };
#define NOT_AVAILABLE UINT64_MAX
#define GPM_APART_MS 100

typedef struct { unsigned pid; uint64_t used; } Process;
typedef struct { unsigned pid; uint64_t stamp; unsigned percent; } Sample;
typedef struct { unsigned id; double value; } Metric;
typedef struct {
    char uuid[96], name[96];
    uint64_t total, used, reserved;
    unsigned gpu, memory, mig, gpm, processes, samples, metrics;
    Process process[MAX_ROWS];
    Sample sample[MAX_ROWS];
    Metric metric[32];
} Device;
typedef struct { char function[64]; int index; double value; } Rule; /* index -1: any */
typedef struct {
    char driver[64];
    unsigned epoch, devices, errors, hangs;
    int64_t now_ms; /* -1: the monotonic clock */
    Rule error[MAX_RULES], hang[MAX_RULES];
    Device device[MAX_DEVICES];
} State;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static State state;
static struct stat seen;
static int users, samples_alive, samples_too_close;
static unsigned calls, inits, init_epoch;

/* What tests ask the library itself. */
void fakenvml_reset(void) { users = samples_alive = samples_too_close = calls = inits = 0; }
int fakenvml_users(void) { return users; }
int fakenvml_gpm_samples(void) { return samples_alive; }
int fakenvml_gpm_too_close(void) { return samples_too_close; }
unsigned fakenvml_calls(void) { return calls; }
unsigned fakenvml_inits(void) { return inits; }

static Rule *rule(Rule *rules, unsigned *count, const char *values) {
    char index[16];
    Rule *r = &rules[*count];
    if (*count < MAX_RULES && sscanf(values, "%63s %15s %lf", r->function, index, &r->value) == 3) {
        r->index = index[0] == '*' ? -1 : atoi(index);
        ++*count;
    }
    return r;
}

static void parse(FILE *file) {
    char line[512], word[32], bytes[32];
    Device nowhere, *d = &nowhere;
    memset(&state, 0, sizeof state);
    memset(&nowhere, 0, sizeof nowhere);
    state.now_ms = -1;
    while (fgets(line, sizeof line, file)) {
        int at = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%31s %n", word, &at) != 1) continue;
        const char *values = line + at;
        if (!strcmp(word, "driver")) snprintf(state.driver, sizeof state.driver, "%.63s", values);
        else if (!strcmp(word, "epoch")) sscanf(values, "%u", &state.epoch);
        else if (!strcmp(word, "now_ms")) sscanf(values, "%ld", &state.now_ms);
        else if (!strcmp(word, "error")) rule(state.error, &state.errors, values);
        else if (!strcmp(word, "hang")) rule(state.hang, &state.hangs, values);
        else if (!strcmp(word, "device") && state.devices < MAX_DEVICES) {
            d = &state.device[state.devices++];
            sscanf(values, "%95s %95[^\n]", d->uuid, d->name);
        }
        else if (!strcmp(word, "memory")) sscanf(values, "%lu %lu %lu", &d->total, &d->used, &d->reserved);
        else if (!strcmp(word, "utilisation")) sscanf(values, "%u %u", &d->gpu, &d->memory);
        else if (!strcmp(word, "mig")) sscanf(values, "%u", &d->mig);
        else if (!strcmp(word, "gpm")) sscanf(values, "%u", &d->gpm);
        else if (!strcmp(word, "metric") && d->metrics < 32) {
            Metric *m = &d->metric[d->metrics++];
            sscanf(values, "%u %lf", &m->id, &m->value);
        }
        else if (!strcmp(word, "process") && d->processes < MAX_ROWS) {
            Process *p = &d->process[d->processes++];
            sscanf(values, "%u %31s", &p->pid, bytes);
            p->used = bytes[0] == 'n' ? NOT_AVAILABLE : strtoull(bytes, NULL, 10);
        }
        else if (!strcmp(word, "sample") && d->samples < MAX_ROWS) {
            Sample *s = &d->sample[d->samples++];
            sscanf(values, "%u %lu %u", &s->pid, &s->stamp, &s->percent);
        }
    }
}

static void refresh(void) {
    struct stat now;
    const char *path = getenv("FAKENVML_STATE");
    if (!path || stat(path, &now)) {
        memset(&seen, 0, sizeof seen);
        memset(&state, 0, sizeof state);
        state.now_ms = -1;
        rule(state.error, &state.errors, "* * 9");
        return;
    }
    if (now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec && now.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
        now.st_size == seen.st_size && now.st_ino == seen.st_ino)
        return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    parse(file);
    fclose(file);
    seen = now;
}

static const Rule *find(const Rule *rules, unsigned count, const char *function, int index) {
    for (unsigned i = 0; i < count; ++i)
        if ((rules[i].function[0] == '*' ? strcmp(function, "nvmlShutdown") != 0
                                         : !strcmp(rules[i].function, function)) &&
            (rules[i].index < 0 || rules[i].index == index))
            return &rules[i];
    return NULL;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Takes the lock, waits out a hang, and gives the injected error; end() lets go of the lock. */
static int begin(const char *function, int index) {
    double begun = now_s();
    const struct timespec pause = {0, 2000000};
    for (;;) {
        pthread_mutex_lock(&lock);
        refresh();
        const Rule *hang = find(state.hang, state.hangs, function, index);
        if (!hang || now_s() - begun >= hang->value) break;
        pthread_mutex_unlock(&lock);
        nanosleep(&pause, NULL);
    }
    ++calls;
    const Rule *error = find(state.error, state.errors, function, index);
    return error ? (int)error->value : OK;
}

static int end(int code) {
    pthread_mutex_unlock(&lock);
    return code;
}

/* A handle is the epoch of the init it came from and the index, so that old ones can go bad. */
static void *handle_of(unsigned index) { return (void *)(((uintptr_t)init_epoch << 16) | (index + 1) << 4); }
static int index_of(void *handle) { return (int)(((uintptr_t)handle & 0xffff) >> 4) - 1; }

static int begin_device(const char *function, void *handle, Device **device) {
    int index = index_of(handle), code = begin(function, index);
    if (code) return code;
    if (!users) return UNINITIALIZED;
    if (((uintptr_t)handle >> 16) != state.epoch) return UNKNOWN;
    if (index < 0 || index >= (int)state.devices) return INVALID;
    *device = &state.device[index];
    return OK;
}
#define DEVICE(handle) \
    Device *d = NULL; \
    int code = begin_device(__func__, handle, &d); \
    if (code) return end(code)
#define DRIVER() \
    int code = begin(__func__, -1); \
    if (!code && !users) code = UNINITIALIZED; \
    if (code) return end(code)

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int code = begin(__func__, -1);
    if (code) return end(code);
    if (!users++) init_epoch = state.epoch;
    ++inits;
    return end(OK);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) {
    DRIVER();
    --users;
    return end(OK);
}

const char *nvmlErrorString(int code) {
    static __thread char text[32];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    DRIVER();
    snprintf(text, size, "%s", state.driver);
    return end(OK);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    DRIVER();
    *count = state.devices;
    return end(OK);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    int code = begin(__func__, (int)index);
    if (!code && !users) code = UNINITIALIZED;
    if (!code && index >= state.devices) code = INVALID;
    if (!code) *handle = handle_of(index);
    return end(code);
}

int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    DEVICE(handle);
    snprintf(text, size, "%s", d->name);
    return end(OK);
}

int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    DEVICE(handle);
    snprintf(text, size, "%s", d->uuid);
    return end(OK);
}

typedef struct { uint64_t total, free, used; } MemoryV1;
typedef struct { unsigned version; uint64_t total, reserved, free, used; } MemoryV2;

int nvmlDeviceGetMemoryInfo(void *handle, MemoryV1 *memory) {
    DEVICE(handle);
    memory->total = d->total;
    memory->used = d->used + d->reserved;
    memory->free = d->total - memory->used;
    return end(OK);
}

int nvmlDeviceGetMemoryInfo_v2(void *handle, MemoryV2 *memory) {
    DEVICE(handle);
    if (memory->version != (sizeof *memory | 2 << 24)) return end(VERSION_MISMATCH);
    memory->total = d->total;
    memory->used = d->used;
    memory->reserved = d->reserved;
    memory->free = d->total - d->used - d->reserved;
    return end(OK);
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
    DEVICE(handle);
    if (d->mig) return end(NOT_SUPPORTED);
    rates[0] = d->gpu;
    rates[1] = d->memory;
    return end(OK);
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    DEVICE(handle);
    *current = *pending = d->mig;
    return end(OK);
}

typedef struct { unsigned pid; uint64_t used; unsigned gpu_instance, compute_instance; } ProcessInfo;

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, ProcessInfo *rows) {
    DEVICE(handle);
    unsigned room = *count;
    *count = d->processes;
    if (room < d->processes) return end(TOO_SMALL);
    for (unsigned i = 0; i < d->processes; ++i)
        rows[i] = (ProcessInfo){d->process[i].pid, d->process[i].used, ~0u, ~0u};
    return end(OK);
}

typedef struct { unsigned pid; uint64_t stamp; unsigned sm, memory, encode, decode; } UtilizationSample;

int nvmlDeviceGetProcessUtilization(void *handle, UtilizationSample *rows, unsigned *count, uint64_t since) {
    DEVICE(handle);
    if (d->mig) return end(NOT_SUPPORTED);
    unsigned newer = 0;
    for (unsigned i = 0; i < d->samples; ++i) newer += d->sample[i].stamp > since;
    if (!newer) return end(d->samples || !d->processes ? NOT_FOUND : OK); /* OK with nothing: a real quirk */
    if (!rows || *count < newer) {
        *count = newer;
        return end(TOO_SMALL);
    }
    *count = 0;
    for (unsigned i = 0; i < d->samples; ++i)
        if (d->sample[i].stamp > since)
            rows[(*count)++] = (UtilizationSample){d->sample[i].pid, d->sample[i].stamp,
                                                   d->sample[i].percent, 0, 0, 0};
    return end(OK);
}

typedef struct { int64_t at_ms; int index; } GpmSample;
typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { unsigned id; int code; double value; const char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *first, *second; GpmMetric metric[477]; } GpmMetrics;

int nvmlGpmQueryDeviceSupport(void *handle, GpmSupport *support) {
    DEVICE(handle);
    support->supported = d->gpm;
    return end(OK);
}

int nvmlGpmSampleAlloc(GpmSample **sample) {
    DRIVER();
    *sample = calloc(1, sizeof **sample);
    ++samples_alive;
    return end(OK);
}

int nvmlGpmSampleFree(GpmSample *sample) {
    DRIVER();
    free(sample);
    --samples_alive;
    return end(OK);
}

int nvmlGpmSampleGet(void *handle, GpmSample *sample) {
    DEVICE(handle);
    if (d->mig || !d->gpm) return end(NOT_SUPPORTED);
    sample->at_ms = state.now_ms >= 0 ? state.now_ms : (int64_t)(now_s() * 1e3);
    sample->index = (int)(d - state.device);
    return end(OK);
}

int nvmlGpmMetricsGet(GpmMetrics *get) {
    DRIVER();
    if (get->version != 1) return end(VERSION_MISMATCH);
    Device *d = &state.device[get->second->index];
    int too_close = get->second->at_ms - get->first->at_ms < GPM_APART_MS;
    samples_too_close += too_close;
    for (unsigned i = 0; i < get->count; ++i) {
        GpmMetric *m = &get->metric[i];
        m->code = NOT_SUPPORTED;
        for (unsigned j = 0; j < d->metrics; ++j)
            if (d->metric[j].id == m->id) {
                m->code = OK;
                m->value = too_close ? 0.0 : d->metric[j].value; /* a plausible lie, as the counters tell */
            }
    }
    return end(OK);
}
