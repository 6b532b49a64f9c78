"""The command line. A command is imported only when it is run, so `falkirk --help` answers at once.

main.py               the root: finds a command by its name, and prints an error with its exit code
commands/             the commands, in files by subject
prompt/               `falkirk sql --dev`: a prompt for SQL

setting.py            an option that the environment and a settings file may also give
config_file.py        the settings file (falkirk.toml) and the environment, and which of them counts
options.py            options that several commands share, and the settings that they make
gateway_options.py    the options of a gateway

running.py            runs an app on this host or on Spark: starts its workers, shows them, and ends
script.py             `flow.run(…)`: the same from a script or a notebook
stopping.py           Ctrl-C and SIGTERM: the first ends cleanly, the second at once
ending.py             how a process ends that is one worker, one driver or one gateway

words.py              the words that a reader of --help must know, and a picture of them
legend.py             the columns of `falkirk status` and of the live view, explained
"""
