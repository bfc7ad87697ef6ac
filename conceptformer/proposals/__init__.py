"""Evidence proposals: a vision-language model marks on each training page what answers its query (Sec. A.4).

:mod:`~conceptformer.proposals.run` is the whole of it; the other modules are its parts: the pairs to ask for, the page
images as they are sent, the prompt, the endpoint, the reply's parser, the files that a kill does not harm.
"""
