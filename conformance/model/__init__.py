"""The reference model: an engine in process answers the same requests as the deployment.

`generator` draws sequences of operations, `play` sends each one to both, `comparison` compares the
answers, `blame` names the clause of a difference, `search` reproduces and shrinks it. `readings`
learns what the specification leaves open before anything is compared.
"""
