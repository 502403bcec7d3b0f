# completions: where the shells look for them
bashcompletiondir = @bashcompletiondir@
zshcompletiondir = @zshcompletiondir@
fishcompletiondir = @fishcompletiondir@
dist_zshcompletion_DATA = completions/_kldumpctl
dist_fishcompletion_DATA = completions/kldumpctl.fish
nodist_bashcompletion_DATA = completions/kldumpctl
EXTRA_DIST += completions/kldumpctl.bash
CLEANFILES += completions/kldumpctl
completions/kldumpctl: completions/kldumpctl.bash
	$(AM_V_GEN)$(MKDIR_P) completions && cp $(srcdir)/completions/kldumpctl.bash $@
