/* c += a b for 8 x 8 elements of c, 8 steps along the sum at a time, as the tensor coprocessor of a PE computes it on cluster memory.
   All matrices are row-major; lda, ldb and ldc are their rows' distances. */
static void mma_8x8xf32(long depth, const float *restrict a, long lda, const float *restrict b, long ldb,
                        float *restrict c, long ldc)
{
    for (long i = 0; i < 8; i++) {
        float sums[8];
        for (long j = 0; j < 8; j++)
            sums[j] = c[i * ldc + j];
        for (long k = 0; k < depth; k++)
            for (long j = 0; j < 8; j++)
                sums[j] += a[i * lda + k] * b[k * ldb + j];
        for (long j = 0; j < 8; j++)
            c[i * ldc + j] = sums[j];
    }
}
