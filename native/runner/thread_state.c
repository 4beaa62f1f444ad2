#define _GNU_SOURCE 1

#include "thread_state.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernloom/float_control.h"

static struct kl_float_control saved_control;
static sigset_t saved_signals;
static _Atomic(const char *) changed_by_worker;

void thread_state_save(void) {
    saved_control = kl_float_read();
    pthread_sigmask(SIG_SETMASK, NULL, &saved_signals);
}

void thread_state_restore(void) {
    kl_float_write(saved_control);
    pthread_sigmask(SIG_SETMASK, &saved_signals, NULL);
}

static const char *changed_signals(void) {
    sigset_t signals;
    pthread_sigmask(SIG_SETMASK, NULL, &signals);
    for (int number = 1; number < SIGRTMIN; number++)
        if (sigismember(&signals, number) != sigismember(&saved_signals, number))
            return "the blocked signals";
    return NULL;
}

void thread_state_prepare_worker(void) {
    kl_float_write(saved_control);
}

void thread_state_look_at_worker(void) {
    const char *what = kl_float_restore(saved_control);
    if (what)
        atomic_store(&changed_by_worker, what);
}

bool thread_state_intact(struct reply *reply) {
    const char *what = kl_float_restore(saved_control), *signals = changed_signals();
    if (signals)
        thread_state_restore();
    if (!what)
        what = signals;
    const char *of_worker = atomic_exchange(&changed_by_worker, NULL);
    if (!what && !of_worker)
        return true;
    reply_fail(reply, KL_STATUS_CHANGED_STATE, "a kernel changed %s%s and did not restore it",
               what ? what : of_worker, what ? "" : " in a thread of kl_parallel");
    return false;
}
