/* Kernels that do what they should, and kernels that do not; each is run by one work-item. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable

__kernel void axpy(long n, float alpha, __global const float *x, __global float *y)
{
    for (long i = 0; i < n; i++)
        y[i] += alpha * x[i];
}

__kernel void count(__global long *counter)
{
    ++*counter;
}

__kernel void twice(__global long *counter)
{
    *counter *= 2;
}

/* The scalars as doubles. */
__kernel void scalars(long i64, float f32, double f64, __global double *out)
{
    out[0] = (double)i64;
    out[1] = (double)f32;
    out[2] = f64;
}

__kernel void write_at(long offset, __global uchar *buffer)
{
    ((volatile __global uchar *)buffer)[offset] = 0x11;
}

__kernel void read_at(long offset, __global uchar *buffer)
{
    (void)((volatile __global uchar *)buffer)[offset];
}

__kernel void write_to(long address)
{
    *(volatile __global int *)address = 1;
}

__kernel void illegal(void)
{
    __builtin_trap();
}

__kernel void hang(void)
{
    for (volatile int going = 1; going;)
        ;
}

/* Recursion is not allowed, but a work-item's own memory can be more than any stack holds. */
__kernel void overflow_stack(void)
{
    volatile uchar much[256 << 20];
    for (long i = 0; i < sizeof much; i += 4096)
        much[i] = 1;
}

__kernel void chatter(long lines)
{
    for (long i = 0; i < lines; i++)
        printf("a line of very much that nobody wants to read, and then some\n");
}
