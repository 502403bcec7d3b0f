/* Where the other programs of kldump are. Any thread. */
#pragma once

/* The path of the program `name`: beside the running program (also after that was replaced on disk), else in the same
 * prefix, which may have been moved, else in the folder that this build is installed to. Owned by the caller; NULL when
 * it is in none. */
char *sibling_path(const char *name);
