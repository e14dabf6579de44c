"""Systems that run what is placed: rota decides, and they are told through their own interfaces."""
