/* The process that holds a pod's namespaces: waits for its end and reaps what is left to it. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void stop(int number) { _exit(number == SIGINT || number == SIGTERM ? 0 : 1); }
static void reap(int number) { while (waitpid(-1, NULL, WNOHANG) > 0) (void)number; }

int main(void) {
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
