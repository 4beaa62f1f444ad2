/* Times an exported matmul and cblas_sgemm in turns, on one thread, by its CPU time. */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "matmul_kernels.h"

typedef void gemm_function(int order, int a_transposed, int b_transposed, int64_t m, int64_t n,
                           int64_t k, float alpha, const float *a, int64_t a_stride, const float *b,
                           int64_t b_stride, float beta, float *c, int64_t c_stride);
enum { ROW_MAJOR = 101, AS_IT_IS = 111, SAMPLE_NS = 4000000 };

static gemm_function *gemm;
static long m, n, k;
static float *a, *b, *c;

static float *filled(long count) {
    float *memory = aligned_alloc(64, (size_t)(count + 16) / 16 * 64);
    if (!memory)
        exit(2);
    for (long i = 0; i < count; i++)
        memory[i] = (float)((i * 7919 + 13) % 1000) / 500 - 1;
    return memory;
}

static void *symbol(void *library, const char *name, const char *other) {
    void *found = dlsym(library, name);
    return found ? found : dlsym(library, other);
}

static void run(int exported) {
    if (exported)
        matmul_float32(m, n, k, a, b, c);
    else
        gemm(ROW_MAJOR, AS_IT_IS, AS_IT_IS, m, n, k, 1, a, k, b, n, 0, c, n);
}

static double measured(int exported, long times) {
    struct timespec start, end;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    for (long i = 0; i < times; i++)
        run(exported);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) /
           (double)times;
}

int main(int count, char **words) {
    if (count != 6)
        return 2;
    m = atol(words[2]), n = atol(words[3]), k = atol(words[4]);
    const long rounds = atol(words[5]);
    void *library = dlopen(words[1], RTLD_NOW);
    void (*set_threads)(int) = 0;
    if (library) {
        gemm = (gemm_function *)symbol(library, "scipy_cblas_sgemm64_", "cblas_sgemm64_");
        set_threads = (void (*)(int))symbol(library, "scipy_openblas_set_num_threads64_",
                                            "openblas_set_num_threads64_");
    }
    if (!gemm || !set_threads) {
        fprintf(stderr, "no OpenBLAS in %s\n", words[1]);
        return 2;
    }
    set_threads(1);
    a = filled(m * k), b = filled(k * n), c = filled(m * n);
    float *expected = filled(m * n);
    run(0);
    for (long i = 0; i < m * n; i++)
        expected[i] = c[i];
    run(1);
    double apart = 0;
    for (long i = 0; i < m * n; i++)
        apart = fmax(apart, fabs((double)c[i] - (double)expected[i]));
    const long times = 1 + (long)(SAMPLE_NS / measured(0, 2));
    for (long round = 0; round < rounds; round++) {
        double found[2];
        for (int turn = 0; turn < 2; turn++) {
            const int exported = (turn + (int)round) % 2;
            found[exported] = measured(exported, times);
        }
        printf("%.1f %.1f\n", found[1], found[0]);
    }
    char *(*core_name)(void) = (char *(*)(void))symbol(library, "scipy_openblas_get_corename64_",
                                                       "openblas_get_corename64_");
    fprintf(stderr, "%g %s\n", apart, core_name ? core_name() : "?");
    return 0;
}
