/* Markers by which a program under qemu-user tells the counter (native/qemu) which instructions to
 * count: a system call that Linux does not have. */
#ifndef KERNLOOM_MARKER_H
#define KERNLOOM_MARKER_H

enum { KL_MARKER_CALL = 0x6b6c, KL_MARKER_BEGIN = 0, KL_MARKER_END = 1 };

#endif
