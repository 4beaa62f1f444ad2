/* c += a b for 16 x 16 elements of c, 16 steps along the sum at a time, as a matrix unit computes it.
   All matrices are row-major; lda, ldb and ldc are their rows' distances. */
static void cube_16x16x16(long depth, const float *restrict a, long lda, const float *restrict b, long ldb,
                          float *restrict c, long ldc)
{
    for (long i = 0; i < 16; i++) {
        float sums[16];
        for (long j = 0; j < 16; j++)
            sums[j] = c[i * ldc + j];
        for (long k = 0; k < depth; k++)
            for (long j = 0; j < 16; j++)
                sums[j] += a[i * lda + k] * b[k * ldb + j];
        for (long j = 0; j < 16; j++)
            c[i * ldc + j] = sums[j];
    }
}
