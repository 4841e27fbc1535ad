"""The paper's agent: a recurrent DQN with many heads, its replay, and all that trains, watches and plays it."""
