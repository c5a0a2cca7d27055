"""The model of the client's promises: programs beside the replicated state, in virtual time.

`truth` says what happened, by the entries of the log; `heard` keeps what programs heard;
`promises` compares the two. `acting` and `calling` drive the real client against real nodes.
"""
