/* Of TensorFlow what weir looks at to choose its allocator and to wait as long as it would: a library of this name, and the
 * base class's virtual AllocateRaw, which calls the allocator's own. That one does as cuda_malloc_async does: it calls the driver
 * twice, with a mutex held under which it also frees. */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int (*Take)(uint64_t *, size_t, void *, void *);
typedef int (*Wait)(void *);

struct Attributes {
    bool retry_on_failure, allocation_will_be_logged;
    void *freed_by;
};

struct Allocator {
    void **table;
    Take take;
    Wait wait;
    void *mempool, *stream;
};

static pthread_mutex_t MUTEX = PTHREAD_MUTEX_INITIALIZER;

static void *own(struct Allocator *self, size_t alignment, size_t bytes)
{
    uint64_t at = 0;
    (void)alignment;
    pthread_mutex_lock(&MUTEX);
    if (self->take(&at, bytes, self->mempool, self->stream) != 0) {
        self->wait(self->stream);
        if (self->take(&at, bytes, self->mempool, self->stream) != 0)
            at = 0;
    }
    pthread_mutex_unlock(&MUTEX);
    return (void *)at;
}

int release(int (*give)(uint64_t, void *), uint64_t at, void *stream)
{
    pthread_mutex_lock(&MUTEX);
    int result = give(at, stream);
    pthread_mutex_unlock(&MUTEX);
    return result;
}

static void *TABLE[] = {(void *)own};

void *_ZN3tsl9Allocator11AllocateRawEmmRKNS_20AllocationAttributesE(
    struct Allocator *self, size_t alignment, size_t bytes, const struct Attributes *attributes)
{
    (void)attributes;
    return ((void *(*)(struct Allocator *, size_t, size_t))self->table[0])(self, alignment, bytes);
}

void *tensor(Take take, Wait wait, void *mempool, void *stream, size_t bytes, int retry)
{
    struct Allocator allocator = {TABLE, take, wait, mempool, stream};
    struct Attributes attributes = {retry != 0, false, NULL};
    return _ZN3tsl9Allocator11AllocateRawEmmRKNS_20AllocationAttributesE(&allocator, 64, bytes, &attributes);
}
