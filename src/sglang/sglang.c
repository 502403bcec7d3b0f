#include "sglang/sglang.h"

#include "sglang/answers.h"
#include "sglang/command.h"
#include "sglang/dump_name.h"
#include "sglang/lines.h"
#include "sglang/needs.h"
#include "sglang/probe.h"
#include "sglang/questions.h"
#include "sglang/respell.h"
#include "sglang/settings.h"

const struct server_operations sglang_operations = {
    .read_command = command_read,
    .version_query = command_version_query,
    .prepare = settings_prepare,
    .build = questions_build,
    .read = answers_read,
    .build_older = questions_build_older,
    .read_line = lines_read,
    .respell = respell_try,
    .read_dump_name = dump_name_read,
    .explain_exit = lines_explain_exit,
    .judge_probe = probe_judge,
    .redact = command_redact,
    .is_shared_memory = needs_is_shared_memory,
};
