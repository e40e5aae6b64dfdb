/* The machine that the plugin believes to run on: its name, its
 * network, its ports, and a /run of its own. Tests run side by side, on machines
 * where real ports are taken and real steps hold leases; none of that may show. */
#ifndef AMLDIST_TESTS_ABI_FAKE_MACHINE_H
#define AMLDIST_TESTS_ABI_FAKE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The one port on which another program listens; 0 if there is no such port. */
extern uint16_t machine_busy_port;

/* What the name service's file says on a machine where all is well. */
#define USUAL_HOSTS "127.0.0.1 localhost\n10.11.0.1 n1\n10.11.0.2 n2\n10.11.0.3 n3\n"

/* Makes this machine a node, or the one on which srun runs ("login"). */
void machine_is(const char* name);

/* What is in a file that the plugin reads: /etc/hosts, /proc/self/cmdline (without arguments), the kernel's ports, or
 * anything under /run, such as /run/plugstack.conf (SLURM_CONF names that folder). */
void machine_says(const char* path, const char* content);

/* Makes the folder that holds all that, and /run; removes it. */
void machine_open(void);
void machine_close(void);

/* The port that bind() gives where any port will do. */
enum { PORT_OF_LISTENER = 40123 };

/* The variable by which a node's srun has given it the token; NULL: none. */
extern const char* machine_channel;

/* Brings a datagram to the listener in srun; and ends the way to it. */
void machine_deliver(const char* datagram);
void machine_cut_off(void);

/* Whether srun confirms no end of a task, and none is noted: then a node that refuses the step ends it by itself. */
extern bool machine_srun_is_silent;

/* Whether the file system on which users keep their flight recorders does not answer: a process that opens one waits
 * until it is killed, and for a process that waits for it time passes at once. */
extern bool machine_recorders_hang;

/* Files in the folder of leases. */
size_t machine_leases(void);
#endif
