#define _GNU_SOURCE 1

#include <sys/syscall.h>

#include "sandbox.h"

/* Calls that older headers do not name. Their numbers are the same on all machines. */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#endif
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif
#ifndef SYS_fsopen
#define SYS_fsopen 430
#endif
#ifndef SYS_fsconfig
#define SYS_fsconfig 431
#endif
#ifndef SYS_fsmount
#define SYS_fsmount 432
#endif
#ifndef SYS_fspick
#define SYS_fspick 433
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_clone3
#define SYS_clone3 435
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef SYS_openat2
#define SYS_openat2 437
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#ifndef SYS_quotactl_fd
#define SYS_quotactl_fd 443
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_setxattrat
#define SYS_setxattrat 463
#endif
#ifndef SYS_removexattrat
#define SYS_removexattrat 466
#endif

#define RULE(call, attempt, check, groups)                                                         \
    { SYS_##call, #call, attempt, check, groups }

/* System calls that no kernel needs. All others are allowed, because C libraries and sanitizers use
 * different ones; sched_setaffinity and sched_setscheduler are the runner's, for its own threads.
 */
const struct sandbox_rule SANDBOX_RULES[] = {
    /* processes */
    RULE(clone, "start a process", SANDBOX_THREAD, SANDBOX_PROCESSES),
    RULE(clone3, "start a process", SANDBOX_NOT_THERE, SANDBOX_PROCESSES),
#ifdef SYS_fork
    RULE(fork, "start a process", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(vfork, "start a process", SANDBOX_NEVER, SANDBOX_PROCESSES),
#endif
    RULE(execve, "execute a program", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(execveat, "execute a program", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(setsid, "leave its session", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(setpgid, "leave its process group", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(ptrace, "trace a process", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(process_vm_readv, "read another process", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(process_vm_writev, "write to another process", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(pidfd_open, "open a process", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(pidfd_getfd, "take a descriptor of a process", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(pidfd_send_signal, "send a signal to a process", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(kcmp, "compare processes", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(process_madvise, "change another process's memory", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(migrate_pages, "move another process's memory", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(move_pages, "move another process's memory", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(setpriority, "change how it is scheduled", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(sched_setparam, "change how it is scheduled", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(sched_setattr, "change how it is scheduled", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(ioprio_set, "change how it is scheduled", SANDBOX_NEVER, SANDBOX_PROCESSES),
    RULE(kill, "send a signal to another process", SANDBOX_OWN_PROCESS, SANDBOX_SIGNALS),
    RULE(tgkill, "send a signal to another process", SANDBOX_OWN_PROCESS, SANDBOX_SIGNALS),
    RULE(tkill, "send a signal to a thread", SANDBOX_NEVER, SANDBOX_SIGNALS),
    RULE(rt_sigqueueinfo, "send a signal", SANDBOX_NEVER, SANDBOX_SIGNALS),
    RULE(rt_tgsigqueueinfo, "send a signal", SANDBOX_NEVER, SANDBOX_SIGNALS),
    RULE(rt_sigaction, "install a signal handler", SANDBOX_HANDLER, SANDBOX_SIGNALS),
    RULE(signalfd4, "take signals from the runner", SANDBOX_NEVER, SANDBOX_SIGNALS),
    /* timers */
    RULE(setitimer, "set a timer", SANDBOX_NEVER, SANDBOX_TIMERS),
    RULE(timer_create, "set a timer", SANDBOX_NEVER, SANDBOX_TIMERS),
    RULE(timerfd_create, "set a timer", SANDBOX_NEVER, SANDBOX_TIMERS),
#ifdef SYS_alarm
    RULE(alarm, "set a timer", SANDBOX_NEVER, SANDBOX_TIMERS),
#endif
    RULE(settimeofday, "set the clock", SANDBOX_NEVER, 0),
    RULE(clock_settime, "set the clock", SANDBOX_NEVER, 0),
    RULE(clock_adjtime, "set the clock", SANDBOX_NEVER, 0),
    RULE(adjtimex, "set the clock", SANDBOX_NEVER, 0),
    /* files */
    RULE(openat, "open a file for writing", SANDBOX_READ_ONLY_2, SANDBOX_FILES),
    RULE(openat2, "open a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(open_by_handle_at, "open a file", SANDBOX_NEVER, 0),
    RULE(mkdirat, "create a folder", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(mknodat, "create a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(unlinkat, "remove a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(renameat2, "rename a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(linkat, "create a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(symlinkat, "create a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(truncate, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(fchmodat, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(fchmodat2, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(setxattrat, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(removexattrat, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(memfd_create, "create a file in memory", SANDBOX_NEVER, SANDBOX_FILES | SANDBOX_READING),
    RULE(fchownat, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(utimensat, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(setxattr, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(lsetxattr, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(fsetxattr, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(removexattr, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(lremovexattr, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(fremovexattr, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(chdir, "leave its folder", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(fchdir, "leave its folder", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(inotify_init1, "watch files", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(fanotify_init, "watch files", SANDBOX_NEVER, 0),
#ifdef SYS_renameat
    RULE(renameat, "rename a file", SANDBOX_NEVER, SANDBOX_FILES),
#endif
#ifdef SYS_open
    RULE(open, "open a file for writing", SANDBOX_READ_ONLY_1, SANDBOX_FILES),
    RULE(creat, "create a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(mkdir, "create a folder", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(rmdir, "remove a folder", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(mknod, "create a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(unlink, "remove a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(rename, "rename a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(link, "create a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(symlink, "create a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(chmod, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(chown, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(lchown, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(utime, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(utimes, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(futimesat, "change a file", SANDBOX_NEVER, SANDBOX_FILES),
    RULE(signalfd, "take signals from the runner", SANDBOX_NEVER, SANDBOX_SIGNALS),
#endif
#ifdef SYS_inotify_init
    RULE(inotify_init, "watch files", SANDBOX_NEVER, SANDBOX_FILES),
#endif
    RULE(shmget, "create memory that outlives it", SANDBOX_NEVER, 0),
    RULE(msgget, "create a queue that outlives it", SANDBOX_NEVER, 0),
    RULE(semget, "create semaphores that outlive it", SANDBOX_NEVER, 0),
    RULE(mq_open, "create a queue that outlives it", SANDBOX_NEVER, 0),
    RULE(mq_unlink, "remove a queue", SANDBOX_NEVER, 0),
    /* network */
    RULE(socket, "open a socket", SANDBOX_NEVER, SANDBOX_NETWORK),
    RULE(socketpair, "open a socket", SANDBOX_NEVER, SANDBOX_NETWORK),
    /* the runner's descriptors, limits and memory */
    RULE(close, "close the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(close_range, "close the runner's own descriptors", SANDBOX_NEVER, 0),
    RULE(read, "read from the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(readv, "read from the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(recvfrom, "read from the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(recvmsg, "read from the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(recvmmsg, "read from the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(write, "write to the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(writev, "write to the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(sendto, "write to the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(sendmsg, "write to the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(sendmmsg, "write to the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(setsockopt, "change the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(shutdown, "close the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(fcntl, "change the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(ioctl, "change the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(dup, "copy the runner's own descriptors", SANDBOX_DESCRIPTOR, 0),
    RULE(dup3, "copy or replace the runner's own descriptors", SANDBOX_DESCRIPTORS, 0),
#ifdef SYS_dup2
    RULE(dup2, "copy or replace the runner's own descriptors", SANDBOX_DESCRIPTORS, 0),
#endif
    RULE(sendfile, "copy the runner's own descriptors", SANDBOX_DESCRIPTORS, 0),
    RULE(splice, "copy the runner's own descriptors", SANDBOX_NEVER, 0),
    RULE(munmap, "unmap memory of the runner", SANDBOX_MEMORY, 0),
    RULE(madvise, "discard memory of the runner", SANDBOX_MEMORY, 0),
    RULE(mremap, "copy a mapping", SANDBOX_MOVE, 0),
    RULE(shmat, "map shared memory", SANDBOX_NEVER, 0),
    RULE(remap_file_pages, "move memory to a place of its choice", SANDBOX_NEVER, 0),
    RULE(prlimit64, "change the limits of the process", SANDBOX_QUESTION, 0),
    RULE(setrlimit, "change the limits of the process", SANDBOX_NEVER, 0),
    RULE(prctl, "change the settings of the process", SANDBOX_PROCESS_SETTING, 0),
    RULE(personality, "change the settings of the process", SANDBOX_PERSONALITY, 0),
    RULE(seccomp, "change the sandbox", SANDBOX_NEVER, 0),
    RULE(mprotect, "make memory executable", SANDBOX_PROTECTION, 0),
    RULE(pkey_mprotect, "make memory executable", SANDBOX_PROTECTION, 0),
    RULE(mmap, "allocate executable memory", SANDBOX_MAPPING, 0),
    /* the system */
    RULE(unshare, "enter a namespace", SANDBOX_NEVER, 0),
    RULE(setns, "enter a namespace", SANDBOX_NEVER, 0),
    RULE(mount, "change the file system", SANDBOX_NEVER, 0),
    RULE(umount2, "change the file system", SANDBOX_NEVER, 0),
    RULE(move_mount, "change the file system", SANDBOX_NEVER, 0),
    RULE(open_tree, "change the file system", SANDBOX_NEVER, 0),
    RULE(fsopen, "change the file system", SANDBOX_NEVER, 0),
    RULE(fsconfig, "change the file system", SANDBOX_NEVER, 0),
    RULE(fsmount, "change the file system", SANDBOX_NEVER, 0),
    RULE(fspick, "change the file system", SANDBOX_NEVER, 0),
    RULE(mount_setattr, "change the file system", SANDBOX_NEVER, 0),
    RULE(swapon, "change the file system", SANDBOX_NEVER, 0),
    RULE(swapoff, "change the file system", SANDBOX_NEVER, 0),
    RULE(quotactl, "change the file system", SANDBOX_NEVER, 0),
    RULE(quotactl_fd, "change the file system", SANDBOX_NEVER, 0),
    RULE(acct, "change the file system", SANDBOX_NEVER, 0),
    RULE(pivot_root, "change the file system", SANDBOX_NEVER, 0),
    RULE(chroot, "change the file system", SANDBOX_NEVER, 0),
    RULE(setuid, "change its user", SANDBOX_NEVER, 0),
    RULE(setgid, "change its user", SANDBOX_NEVER, 0),
    RULE(setresuid, "change its user", SANDBOX_NEVER, 0),
    RULE(setreuid, "change its user", SANDBOX_NEVER, 0),
    RULE(setregid, "change its user", SANDBOX_NEVER, 0),
    RULE(setresgid, "change its user", SANDBOX_NEVER, 0),
    RULE(setgroups, "change its user", SANDBOX_NEVER, 0),
    RULE(setfsuid, "change its user", SANDBOX_NEVER, 0),
    RULE(setfsgid, "change its user", SANDBOX_NEVER, 0),
    RULE(capset, "change its user", SANDBOX_NEVER, 0),
    RULE(bpf, "load a program into the system", SANDBOX_NEVER, 0),
    RULE(init_module, "load a module into the system", SANDBOX_NEVER, 0),
    RULE(finit_module, "load a module into the system", SANDBOX_NEVER, 0),
    RULE(delete_module, "load a module into the system", SANDBOX_NEVER, 0),
    RULE(kexec_load, "replace the system", SANDBOX_NEVER, 0),
#ifdef SYS_kexec_file_load
    RULE(kexec_file_load, "replace the system", SANDBOX_NEVER, 0),
#endif
    RULE(sethostname, "rename the system", SANDBOX_NEVER, 0),
    RULE(setdomainname, "rename the system", SANDBOX_NEVER, 0),
    RULE(syslog, "read the system's log", SANDBOX_NEVER, 0),
    RULE(reboot, "restart the system", SANDBOX_NEVER, 0),
#ifdef SYS_iopl
    RULE(iopl, "use devices by itself", SANDBOX_NEVER, 0),
    RULE(ioperm, "use devices by itself", SANDBOX_NEVER, 0),
    RULE(modify_ldt, "change its segments of memory", SANDBOX_NEVER, 0),
#endif
    RULE(perf_event_open, "open a performance counter", SANDBOX_NEVER, 0),
    RULE(userfaultfd, "handle its own page faults", SANDBOX_NEVER, 0),
    RULE(io_uring_setup, "open a ring of requests", SANDBOX_NEVER, 0),
    RULE(keyctl, "change the keys of its user", SANDBOX_NEVER, 0),
    RULE(add_key, "change the keys of its user", SANDBOX_NEVER, 0),
    RULE(request_key, "use the keys of its user", SANDBOX_NEVER, 0),
};
const size_t SANDBOX_RULE_COUNT = sizeof SANDBOX_RULES / sizeof *SANDBOX_RULES;
