/* filter.h: the part of DUMPER_FILTER that the stand-in evaluates. The real one is any Python expression; everything
 * outside this grammar behaves here as a filter that raises inside the forward pass.
 *
 *   True | False | None | name == 'TEXT' | 'TEXT' in name | layer_id in [1, 2] | layer_id is None or layer_id < N
 *   layer_id < N (raises where there is no layer_id) | step == N, rank == N (unknown names are None: false)
 */
#ifndef KLDUMP_STANDIN_FILTER_H
#define KLDUMP_STANDIN_FILTER_H

enum filter_result { FILTER_NO, FILTER_YES, FILTER_ERROR };

/* `layer_id` -1: None. On FILTER_ERROR *ret_message is the text of the exception. */
enum filter_result filter_evaluate(const char *expression, const char *name, int layer_id, const char **ret_message);

#endif
