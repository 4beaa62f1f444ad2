/* C = A B for square matrices of N rows, in tiles of TI x TJ x TK; the tuner sets the macros. */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

void tiled(long n, const float *restrict A, const float *restrict B, float *restrict C)
{
    (void)n;
    for (int i = 0; i < N * N; i++)
        C[i] = 0;
    for (int kt = 0; kt < N; kt += TK)
        for (int it = 0; it < N; it += TI)
            for (int jt = 0; jt < N; jt += TJ)
                for (int i = it; i < it + TI; i++)
                    for (int k = kt; k < kt + TK; k++) {
                        const float a = A[i * N + k];
                        _Pragma(TEXT(GCC unroll UNROLL))
                        for (int j = jt; j < jt + TJ; j++)
                            C[i * N + j] += a * B[k * N + j];
                    }
}
