"""``%gpuprof audit``: does an interrupted run go on as it would have gone on?"""
