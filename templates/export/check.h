/* Reads the data of a test and compares results with the expected values. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *folder = "data";

static inline void *allocated(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    if (!memory) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    memset(memory, 0xff, bytes); /* every float is NaN until it is written */
    return memory;
}

static inline void *from_file(const char *name, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    void *memory = allocated(bytes);
    if (!file || fread(memory, 1, bytes, file) != bytes) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    fclose(file);
    return memory;
}

#define CHECK(TYPE)                                                                                \
    static inline int check_##TYPE(const char *name, const TYPE *found, const double *expected,   \
                            const unsigned char *region, size_t count, double rtol, double atol)  \
    {                                                                                              \
        for (size_t n = 0; n < count; n++) {                                                      \
            const double value = (double)found[n], error = fabs(value - expected[n]);             \
            if (region && !region[n])                                                             \
                continue; /* this element does not count */                                       \
            if (value == expected[n] || (isnan(value) && isnan(expected[n])))                     \
                continue;                                                                         \
            if (isfinite(expected[n]) && error <= atol + rtol * fabs(expected[n]))                \
                continue;                                                                         \
            printf("WRONG: %s[%zu] is %.9g, expected %.9g\n", name, n, value, expected[n]);       \
            return 1;                                                                             \
        }                                                                                          \
        return 0;                                                                                  \
    }

typedef unsigned char uint8;
CHECK(float)
CHECK(double)
CHECK(int)
CHECK(long)
CHECK(uint8)
